"""Machine profiles: YAML files in which every number carries its unit and its source, and the schema that rejects the rest."""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from .errors import ModelError, require

PROFILES = Path(__file__).parent / "profiles"


class Strict(BaseModel):
    """Base of every schema here: unknown keys are errors, instances are read-only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Quantity(Strict):
    """A number that says what it is: value, unit, and where it comes from (a named source, or "assumed" and why)."""

    value: float
    unit: str
    source: Annotated[str, Field(min_length=7)]


def quantity(unit: str, low: float = 0.0, high: float = float("inf")) -> object:
    """Annotated type of a `Quantity` that must be in `unit` and in [low, high]."""

    def check(q: Quantity) -> Quantity:
        if q.unit != unit:
            raise ValueError(f"unit is {q.unit!r}; allowed: {unit!r}")
        if not low <= q.value <= high or q.value != q.value:
            raise ValueError(f"value is {q.value!r}; allowed: {low:g} to {high:g}")
        return q

    return Annotated[Quantity, AfterValidator(check)]


TINY = 1e-6
Fraction = quantity("1", TINY, 1.0)
Count = quantity("1", 1.0)
Rate = quantity("GB/s", TINY)
Duration = quantity("us")


class Gpu(Strict):
    """One GPU. Rates are of the whole GPU; a wave is 32 (NVIDIA) or 64 (AMD) threads."""

    name: str
    compute_units: Count
    wave_slots: quantity("waves/CU", 1)  # type: ignore[valid-type]
    memory_peak: Rate
    memory_read: Rate  # what a streaming kernel reaches
    sector: quantity("B", 1)  # type: ignore[valid-type]  # memory serves whole ones: scattered rows cost what they touch
    memory_latency: Duration
    matrix_peak: quantity("TFLOP/s", TINY)  # type: ignore[valid-type]  # 16-bit, dense
    vector_peak: quantity("TFLOP/s", TINY)  # type: ignore[valid-type]  # fp32
    launch: Duration  # from the end of a kernel to the start of the one behind it


class Fabric(Strict):
    """What connects the GPUs: one link per ordered pair, one port per GPU into a switch, or one NIC per node."""

    kind: Literal["pairwise", "switch", "nic"]
    link: Rate  # one direction: of a pair, a port or a NIC; what stores or puts reach
    flag_latency: Duration  # from the release of a flag to the end of the peer's acquiring spin
    store_rate: Rate  # what one work-group stores into a peer
    put_cost: Duration  # NIC time of one put beyond its bytes; 0 where work-groups store by themselves


class Library(Strict):
    """The vendor's collectives: alpha + bytes / (efficiency x link bandwidth); alpha includes the launch."""

    alpha_all_reduce: Duration
    alpha_all_to_all: Duration
    efficiency_all_reduce: Fraction
    efficiency_all_to_all: Fraction


class Kernel(Strict):
    """How an operator's kernels use this GPU. Registers bound the work-groups a CU holds; communication code needs more of them."""

    waves_per_wg: Count
    wgs_per_cu: Count  # compute kernel alone
    fused_wgs_per_cu: Count
    bytes_in_flight: quantity("B/wave", 1)  # type: ignore[valid-type]  # load bytes that one wave keeps outstanding
    wg_overhead: Duration  # of one logical work-group, on top of its memory and math time
    memory_efficiency: Fraction  # of memory_read, for this access pattern
    math_efficiency: Fraction  # of the matrix or vector peak


class Profile(Strict):
    """A machine: `gpus` GPUs of one kind behind one fabric. Names are file stems."""

    name: str
    title: str
    gpus: Count
    gpu: Gpu
    fabric: Fabric
    library: Library
    kernels: dict[Literal["gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all"], Kernel]


def first_line(error: ValidationError, what: str) -> ModelError:
    """The first complaint of pydantic as one line that names file, field and what is wrong."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "top level"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return ModelError(f"{what}: {where}: {first['msg'].removeprefix('Value error, ')}{more}")


def read_mapping(path: Path) -> dict:
    """The mapping in one YAML file. Raises `ModelError` when there is none."""
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"{path.name}: no such file in {path.parent.name}/") from None
    except yaml.YAMLError as error:
        raise ModelError(f"{path.name}: not YAML: {str(error).splitlines()[0]}") from None
    require(isinstance(raw, dict), path.name, type(raw).__name__, "a mapping")
    return raw


def validated(raw: dict, schema: type[Strict], what: str) -> Strict:
    """`raw` as an instance of `schema`. Raises `ModelError`."""
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        raise first_line(error, what) from None


def overlay(base: dict, over: dict) -> dict:
    """`base` with the sections of `over` laid over it; a quantity (a mapping with "value") replaces the whole one."""
    merged = dict(base)
    for key, value in over.items():
        nested = isinstance(value, dict) and "value" not in value and isinstance(base.get(key), dict)
        merged[key] = overlay(base[key], value) if nested else value
    return merged


def names() -> list[str]:
    """Every profile there is."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load_layered(folder: Path, name: str, schema: type[Strict]) -> Strict:
    """`folder`/`name`.yaml; with `base: other` it starts from that file and states what differs (one level deep). Raises `ModelError`."""
    raw = read_mapping(folder / f"{name}.yaml")
    if "base" in raw:
        base = raw.pop("base")
        others = sorted(path.stem for path in folder.glob("*.yaml") if path.stem != name)
        require(base in others, f"{name}.yaml: base", base, ", ".join(others))
        raw = overlay(read_mapping(folder / f"{base}.yaml"), raw)
    found = validated(raw, schema, f"{name}.yaml")
    require(found.name == name, f"{name}.yaml: name", found.name, name)  # type: ignore[attr-defined]
    return found


def load(name: str) -> Profile:
    """The profile of that name. Raises `ModelError` for an unknown or malformed one."""
    require(name in names(), "machine", name, ", ".join(names()))
    profile = load_layered(PROFILES, name, Profile)
    require(len(profile.kernels) == 3, f"{name}.yaml: kernels", sorted(profile.kernels), "all three operators")  # type: ignore[attr-defined]
    return profile  # type: ignore[return-value]


def quantities(node: BaseModel, prefix: str = "") -> list[tuple[str, Quantity]]:
    """Every (dotted name, quantity) of a profile or workload, for the tables."""
    found = []
    for key in type(node).model_fields:
        value = getattr(node, key)
        items = value.items() if isinstance(value, dict) else [(None, value)]
        for sub, item in items:
            name = f"{prefix}{key}" + (f".{sub}" if sub else "")
            if isinstance(item, Quantity):
                found.append((name, item))
            elif isinstance(item, BaseModel):
                found += quantities(item, f"{name}.")
    return found

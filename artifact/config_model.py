"""The configuration: one typed model, from which `config/schema.json` and `config/README.md` are generated.

Every influence on a result that is not a case file is a key here; unknown keys and bad values end in one line.
"""

import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import ArtifactError
from .files import ROOT

README = ROOT / "config" / "README.md"
SCHEMA = ROOT / "config" / "schema.json"


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Gpu(_Block):
    """Measuring on this machine's GPUs (backend gpu)."""

    machine: str = Field(
        default="this-machine",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Name of this machine in rows and figures.",
        examples=["h200-x4"],
    )
    samples: int = Field(
        default=60,
        ge=10,
        le=1000,
        description="Samples of every arm and case; 30 or more for narrow intervals.",
        examples=[100],
    )


class Model(_Block):
    """The timing model and the scale-out simulation."""

    max_nodes: Literal[16, 32, 64, 128, 256, 512, 1024] = Field(
        default=128, description="Largest simulated cluster; 1024 takes minutes and gigabytes.", examples=[256]
    )


class Config(_Block):
    """All keys of `config/config.yaml`."""

    backend: Literal["auto", "emulator", "gpu"] = Field(
        default="auto",
        description="Where kernels run: `emulator` (CPU), `gpu` (two or more GPUs with peer access, else an error), or `auto`: gpu if possible.",
        examples=["emulator"],
    )
    cluster: bool = Field(
        default=False,
        description="Jobs run on other machines than the one that starts them (`profiles/slurm`): only jobs that use GPUs look for them.",
        examples=[True],
    )
    scope: Literal["smoke", "sample", "full"] = Field(
        default="sample",
        description="Which correctness cases and mutants count for tables and claims: one case an operator, a stratified sample, or all.",
        examples=["full"],
    )
    seed: int = Field(
        default=20241117,
        ge=0,
        lt=2**31,
        description="Seed of schedules, mutants and the order of measured arms.",
        examples=[1],
    )
    reference: str = Field(
        default="auto",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Recorded measurements (`experiments/reference/<name>/`) that stand in for measured time where there are no GPUs; `auto`: the most GPUs.",
        examples=["h200-x2"],
    )
    gpu: Gpu = Field(default_factory=Gpu, description="Measuring on this machine's GPUs.")
    model: Model = Field(default_factory=Model, description="Timing model and scale-out simulation.")


def parse(values: dict[str, Any], name: str = "config") -> Config:
    """The configuration of a nested dictionary. Raises `ArtifactError`: one line with key, value and what is allowed."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ArtifactError(f"{name}: {one_line(error, Config)}") from None


def load(path: Path) -> Config:
    """The configuration of a YAML file; same errors as `parse`."""
    try:
        values = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ArtifactError(f"{path}: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise ArtifactError(f"{path} is {type(values).__name__!r}; allowed: a mapping of keys")
    return parse(values, str(path))


def one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """The first complaint of pydantic in the house form: what, its value, what is allowed."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        block: Any = model
        for part in first["loc"][:-1]:
            field = getattr(block, "model_fields", {}).get(part)
            block = field.annotation if field is not None else None
        known = ", ".join(getattr(block, "model_fields", {})) or "none"
        return f"unknown key {place!r}; allowed: {known}"
    allowed = first["msg"].removeprefix("Input should be ").replace("Value error, ", "")
    return f"{place} is {first.get('input')!r}; allowed: {allowed}"


def schema_text() -> str:
    """`config/schema.json`: the JSON schema for editors."""
    return json.dumps(Config.model_json_schema(), indent=1) + "\n"


def _rows(block: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in block.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _rows(field.annotation, f"{prefix}{name}.")
            continue
        default = "" if field.is_required() else json.dumps(field.get_default())
        values = getattr(field.annotation, "__args__", None)
        allowed = ", ".join(f"`{v}`" for v in values) if values else field.annotation.__name__  # type: ignore[union-attr]
        limits = [
            f"{k} {getattr(m, k)}"
            for m in field.metadata
            for k in ("ge", "le", "lt", "gt")
            if getattr(m, k, None) is not None
        ]
        words = {"ge": ">=", "le": "<=", "lt": "<", "gt": ">"}
        limit = "".join(f", {words[item.split()[0]]} {item.split()[1]}" for item in limits)
        found.append(f"| `{prefix}{name}` | `{default}` | {allowed}{limit} | {field.description} |")
    return found


def readme_text() -> str:
    """`config/README.md`: every key with default, allowed values and meaning."""
    lines = [
        "# Configuration",
        "",
        "Generated from `artifact/config_model.py` by `python -m artifact config --write`; a test compares them.",
        "",
        "`config.yaml` is read by every run. Change a key there, or for one run with `--config key=value` at the END of the command",
        "(`snakemake all --config backend=emulator`), or with `--configfile my.yaml` (dictionaries merge, lists are replaced).",
        "Which shapes are verified and timed is data: `experiments/cases/*.csv`. Cores and job limits are in `profiles/`.",
        "",
        "| key | default | allowed | meaning |",
        "|---|---|---|---|",
        *_rows(Config),
        "",
    ]
    return "\n".join(lines)


def default_yaml() -> str:
    """The text of `config/config.yaml`: every key with its default and a comment."""

    def block(model: type[BaseModel], indent: str) -> list[str]:
        lines = []
        for name, field in model.model_fields.items():
            lines.append(f"{indent}# {field.description}")
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                lines += [f"{indent}{name}:", *block(field.annotation, indent + "  ")]
            else:
                default = field.get_default()
                lines.append(f"{indent}{name}: {str(default).lower() if isinstance(default, bool) else default}")
        return lines

    return "\n".join(["# All keys with their defaults; see README.md beside this file.", *block(Config, "")]) + "\n"

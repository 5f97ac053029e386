"""The catalog names every kernel of the project, and records what the operators themselves launch."""

import ast
from pathlib import Path

import pytest
import torch

from kernels.build import catalog, targets
from kernels.build.recorder import RecordingMemory

ROOM = Path(__file__).parents[2] / "kernels"


def _launches(target: str) -> dict[str, object]:
    recorded = {}
    for entry in catalog.ENTRIES:
        symm = RecordingMemory(targets.get(target), entry.world_size)
        catalog.launch(entry, symm)
        (recorded[entry.kernel],) = symm.launches
    return recorded


@pytest.fixture(scope="module")
def launches():
    return _launches("sm_90")


def _kernels_in_source() -> set[str]:
    """Triton functions of the operators that are launched: compiled ones whose name ends in _kernel."""
    names = set()
    for path in ROOM.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if not (isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")):
                continue
            if any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list):
                names.add(f"kernels.{path.stem}.{node.name}")
    return names


def test_every_kernel_is_built(launches):
    built = {f"{launch.kernel.fn.__module__}.{launch.kernel.fn.__name__}" for launch in launches.values()}
    assert len(built) >= 7
    assert _kernels_in_source() == built


def test_names_are_unique_and_say_what_is_built(launches):
    assert len({entry.kernel for entry in catalog.ENTRIES}) == len(catalog.ENTRIES)
    for entry in catalog.ENTRIES:
        assert entry.kernel == f"{entry.operator}.{entry.variant}.{entry.dtype}"
        dtypes = {value.dtype for value in launches[entry.kernel].args.values() if isinstance(value, torch.Tensor)}
        assert getattr(torch, entry.dtype) in dtypes


def test_every_fused_kernel_has_its_compute_kernel():
    """The same operator and dtype, so that occupancies can be compared."""
    of_role = {
        role: {(e.operator, e.dtype) for e in catalog.ENTRIES if e.role == role}
        for role in ("fused", "compute", "staged")
    }
    assert of_role["fused"] == of_role["compute"]
    assert of_role["staged"] <= of_role["fused"]
    assert {e.operator for e in catalog.ENTRIES} == {"gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all"}


def test_recorded_arguments_are_the_operators_own(launches):
    launch = launches["gemv_all_reduce.one_shot.bfloat16"]
    assert launch.args["WORLD"] == catalog.WORLD_SIZE
    assert launch.args["weight"].device.type == "meta"
    assert launch.args["bases"].shape == (catalog.WORLD_SIZE,)
    assert launch.kernel.fn.__name__ == "one_shot_kernel"

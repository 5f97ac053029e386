"""Every arm that two GPUs would time gives the right result on two emulated ranks, with gloo in the place of NCCL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import emulator

HERE = Path(__file__).parent
TINY = {"case": "tiny", "model": "m", "source": "s", "dtype": "float32"}
CASES = {
    "gemv_all_reduce": TINY | {"m": 16, "k": 20, "batch": 1},
    "embedding_all_to_all": TINY
    | {"global_batch": 5, "tables": 2, "rows": 9, "dim": 8, "pooling": 2, "bags": "ragged"},
    "gemm_all_to_all": TINY | {"m": 9, "n": 8, "k": 8, "experts": 2, "split": "uneven"},
}
# What cannot run on CPUs: torch's symmetric memory, its grouped GEMM in float32, its all-to-all on NVSHMEM.
MISSING = {
    "gemv_all_reduce": {f"{k}+symm_{s}_shot" for k in ("own", "linear", "mv") for s in ("one", "two")},
    "embedding_all_to_all": {"own+vdev"},
    "gemm_all_to_all": {"grouped", "grouped+nccl"},
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[emulator.Ranks, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE.parents[1]}:{HERE}")
        patch.syspath_prepend(str(HERE))
        with emulator.Ranks(2, heap_bytes=1 << 27, timeout_s=60.0) as pool:
            yield pool, str(tmp_path_factory.mktemp("gloo") / "rendezvous")


@pytest.mark.parametrize("operator", CASES)
def test_all_arms_are_right(ranks: tuple[emulator.Ranks, str], operator: str) -> None:
    pool, rendezvous = ranks
    reports = pool.run("two_ranks:all_arms", rendezvous, operator, CASES[operator])
    missing = {name for name, arm in reports[0]["arms"].items() if "reason" in arm}
    assert missing == MISSING[operator]
    for rank, report in enumerate(reports):
        checks = {name: arm["check"]["ok"] for name, arm in report["arms"].items() if name not in missing}
        assert all(checks.values()), f"rank {rank}: {checks}"
    arms = reports[0]["arms"]
    assert {"fused", "bulk", "push", "decomposed", "compute"} <= {arm["strategy"] for arm in arms.values()}
    assert all(len(arm["graph"]) == 2 for name, arm in arms.items() if name not in missing)

"""Verification of kernels that were broken on purpose: each fault in each operator and transport fails, and says where."""

import csv
from pathlib import Path

import pytest

from experiments import cases
from experiments.verify import __main__ as cli
from experiments.verify import faults

VARIANTS = {
    "gemv_all_reduce": [
        {"case": "peer", "algorithm": "two_phase", "transport": "peer"},
        {"case": "one_shot", "algorithm": "one_shot", "transport": "peer"},
        {"case": "rdma", "algorithm": "two_phase", "transport": "rdma"},
    ],
    "embedding_all_to_all": [{"case": t, "transport": t} for t in ("peer", "staged", "rdma")],
    "gemm_all_to_all": [{"case": t, "transport": t} for t in ("peer", "staged", "rdma")],
}
SHAPES = {
    "gemv_all_reduce": {"m": 140, "k": 24, "batch": 1, "algorithm": "", "bias": 0, "residual": 0},
    "embedding_all_to_all": {
        "global_batch": 24, "tables": 2, "rows": 30, "dim": 16, "pooling": 2, "bags": "fixed", "mode": "sum",
        "weighted": 0, "index_dtype": "int32",
    },
    "gemm_all_to_all": {"m": 64, "n": 40, "k": 8, "experts": 2, "split": "even", "scaled": 0},
}  # fmt: skip
# Long skews, so that a rank that does not wait is ahead of one that still computes or reads.
REST = {
    "dtype": "float32",
    "world_size": 2,
    "calls": 12,
    "skew_us": 20_000,
    "changing": 0,
    "seed": 7,
    "sample": 1,
    "order": "remote_first",
}
ONLY = {"drop_fence": "rdma", "drop_quiet": "rdma"}  # faults of one transport
# What a NIC does late shows in some calls only, in each by itself. Measured: in a tenth of embedding's without `quiet`, in a
# quarter or more of the others.
CALLS = {
    ("embedding_all_to_all", "drop_quiet"): 120,
    ("gemm_all_to_all", "drop_quiet"): 48,
    **{(o, "drop_fence"): 48 for o in VARIANTS},
}
# GEMV would be right without its `quiet`: when its sources are overwritten, every peer has sent something after the flag of
# each put had arrived there. OpenSHMEM still wants it before a source is used again.
NEEDLESS = {("gemv_all_reduce", "drop_quiet")}


def broken_cases(operator: str, fault: str) -> list[cases.Case]:
    wanted = ONLY.get(fault)
    return [
        REST
        | SHAPES[operator]
        | {"fenced": int(v["transport"] == "rdma"), "calls": CALLS.get((operator, fault), REST["calls"])}
        | v
        for v in VARIANTS[operator]
        if wanted in (None, v["transport"])
    ]


@pytest.mark.parametrize(
    ("operator", "fault"), [(o, f) for o in cases.OPERATORS for f in faults.FAULTS if (o, f) not in NEEDLESS]
)
def test_broken_kernels_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, operator: str, fault: str
) -> None:
    if fault == "drop_flag":
        monkeypatch.setattr(cli.backends, "EMULATOR_TIMEOUT_S", 2.0)  # every case hangs
    chosen, path = broken_cases(operator, fault), tmp_path / "cases.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, chosen[0].keys())
        writer.writeheader()
        writer.writerows(chosen)
    arguments = ["--operator", operator, "--cases", str(path), "--fault", fault, "--out", str(tmp_path / "rows.csv")]
    assert cli.main(arguments) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("failed: ")]
    assert len(lines) == len(chosen), lines
    for line, case in zip(lines, chosen, strict=True):
        assert line.startswith((f"failed: {operator}, case {case['case']}, rank 0, call ", f"failed: {operator}, case {case['case']}, rank 1, call "))  # fmt: skip
        assert ", seed 70" in line

"""Validation on synthetic measurements: rows that the model explains pass, rows that it does not explain fail, no rows say so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from model_machines import machine_of

from experiments import cases as case_lists
from experiments.model import fitting, validation
from experiments.model.errors import ModelError
from experiments.model.fitting import Point
from experiments.model.machine import US, Machine

CHOSEN = {
    "gemv_all_reduce": ["llama3-8b.o.tp2.b1", "llama3-70b.o.tp4.b1", "llama3-70b.o.tp2.b1", "llama3-70b.down.tp2.b1"],
    "embedding_all_to_all": [
        "b512.t64.l32.d128.fp32",
        "b1024.t16.l32.d128.fp32",
        "b512.t64.l32.d128.bf16",
        "b1024.t16.l32.d128.bf16",
    ],
}
ARMS = {
    "gemv_all_reduce": ("own", "own+nccl", "fused.two_phase", "fused.one_shot"),
    "embedding_all_to_all": ("own", "own+nccl+permute", "fused.peer"),
}


def truth() -> Machine:
    """A machine that differs from the profile in what validation may fit."""
    base = machine_of("h200-x2")
    other = replace(base, launch=2.2 * US, sync_cost=0.8 * US, alpha_all_reduce=9 * US, efficiency_all_to_all=0.6)
    return other.with_kernel("gemv_all_reduce", memory_efficiency=0.93)


def synthetic(machine: Machine, noise: float, world: int, swap: bool = False) -> pd.DataFrame:
    """Rows as the harness writes them: three samples an arm. `swap`: measured bulk and fused change places."""
    rng = np.random.default_rng(7)
    rows = []
    for operator, names in CHOSEN.items():
        known = {c["case"]: c for c in case_lists.timing(operator)}
        for name in names:
            for arm in ARMS[operator] if world > 1 else ("own",):
                strategy, extra = validation.ARMS[operator][arm]
                point = Point(operator, {**known[name], **extra}, arm, strategy, world, 0.0)
                exact = fitting.predict(machine, point) / US
                if swap and strategy != "compute":
                    exact *= {"bulk": 0.6, "fused": 1.6}[strategy]
                factor = 1 + noise * rng.uniform(-1, 1)
                for sample in range(3):
                    row = {"operator": operator, "case": name, "arm": arm, "strategy": strategy, "face": "out"}
                    row |= {"mode": "graph", "backend": "gpu", "machine": "h200-x2", "world_size": world}
                    row |= {
                        "dtype": known[name]["dtype"],
                        "sample": sample,
                        "time_us": exact * factor * (1 + 0.001 * sample),
                    }
                    rows.append({**row, "status": "ok", "reason": ""})
    return pd.DataFrame(rows)


def save(frame: pd.DataFrame, folder: Path) -> Path:
    """Into a reference folder of one machine; returns the reference folder."""
    folder.mkdir(parents=True)
    frame.to_csv(folder / "timing.csv", index=False)
    return folder.parent


def verdict(files: dict[str, list[dict]], machine: str) -> dict:
    """The summary row of a machine."""
    return next(row for row in files["validation_summary"] if row["machine"] == machine)


def test_rows_of_a_machine_like_ours_validate(tmp_path: Path) -> None:
    frame = synthetic(truth(), 0.03, 2)
    # What is not to be judged: eager times, failed samples, other arms, other backends, unknown cases.
    wrong = [{"mode": "eager"}, {"status": "failed"}, {"arm": "mv+nccl"}, {"backend": "emulator"}, {"case": "?"}]
    junk = [{**frame.iloc[0].to_dict(), "time_us": 1e6, **change} for change in wrong]
    reference = save(pd.concat([frame, pd.DataFrame(junk)]), tmp_path / "h200-x2")
    files, message = validation.run(reference)
    row = verdict(files, "h200-x2")
    assert row["status"] == "ok", row
    assert row["mean_error_percent"] < 6
    assert row["sign_right"] == row["sign_cases"] > 0
    assert row["points"] == 2 * 4 + 2 * 3  # half of the cases
    assert "h200-x2: validated" in message
    halves = {(r["operator"], r["case"]): r["half"] for r in files["validation"]}
    assert len(files["validation"]) == 4 * 4 + 4 * 3
    assert sorted(halves.values()) == ["fit"] * 4 + ["judge"] * 4
    fitted = {r["constant"]: r["fitted_value"] for r in files["validation_constants"]}
    assert fitted["alpha_all_reduce"] == pytest.approx(9 * US, rel=0.25)
    assert fitted["gemv_all_reduce.memory_efficiency"] == pytest.approx(0.93, rel=0.05)


@pytest.mark.parametrize(("noise", "swap"), [(0.8, False), (0.0, True)])
def test_rows_that_the_model_does_not_explain_fail(tmp_path: Path, noise: float, swap: bool) -> None:
    files, message = validation.run(save(synthetic(truth(), noise, 2, swap), tmp_path / "h200-x2"))
    row = verdict(files, "h200-x2")
    assert row["status"] == "failed"
    assert row["verdict"].startswith("not validated: mean error")
    assert "h200-x2: not validated" in message
    if swap:
        assert row["sign_right"] < row["sign_cases"]


def test_compute_half_validates_on_one_gpu(tmp_path: Path) -> None:
    files, _ = validation.run(save(synthetic(truth(), 0.02, 1), tmp_path / "h200-x1"))
    row = verdict(files, "h200-x1")
    assert (row["half"], row["status"], row["points"]) == ("compute", "ok", 4)
    assert {r["constant"] for r in files["validation_constants"]} >= {"launch", "gemv_all_reduce.wg_overhead"}
    assert verdict(files, "h200-x2")["verdict"] == "not validated: no two-GPU measurements recorded"


def test_without_measurements_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "h200-x2").mkdir()
    pd.DataFrame({"case": ["a"], "max_abs_error": [0.0]}).to_csv(tmp_path / "h200-x2" / "verify.csv")
    files, message = validation.run(tmp_path)
    assert files["validation"] == []
    assert {row["status"] for row in files["validation_summary"]} == {"missing"}
    assert "h200-x2: not validated: no two-GPU measurements recorded" in message


def test_malformed_rows_are_one_line(tmp_path: Path) -> None:
    reference = save(synthetic(truth(), 0.0, 1).drop(columns="status"), tmp_path / "h200-x2")
    with pytest.raises(ModelError, match=r"h200-x2/timing.csv: columns is 'without status'"):
        validation.run(reference)


def test_a_point_is_judged_by_its_error_and_its_sign() -> None:
    machine = machine_of("h200-x2")
    case = {c["case"]: c for c in case_lists.timing("gemv_all_reduce")}["llama3-70b.o.tp2.b1"]
    exact = [Point("gemv_all_reduce", case, s, s, 2, 1.0) for s in ("bulk", "fused")]
    points = [replace(p, measured=fitting.predict(machine, p)) for p in exact]
    perfect, _ = validation.judge(machine, points)
    assert perfect.mean_error < 1e-9
    assert perfect.passed
    assert (perfect.sign_right, perfect.sign_cases) == (1, 1)
    upside_down = [replace(points[0], measured=points[1].measured), replace(points[1], measured=points[0].measured)]
    judged, _ = validation.judge(machine, upside_down)
    assert (judged.sign_right, judged.sign_cases) == (0, 1)
    assert not judged.passed
    off, _ = validation.judge(machine, [replace(p, measured=p.measured / 1.2) for p in points])
    assert off.mean_error == pytest.approx(20)
    assert not off.passed


@pytest.mark.parametrize("machine", sorted(p.name for p in Path("experiments/reference").iterdir() if p.is_dir()))
def test_reads_what_is_recorded(machine: str) -> None:
    """Studies and event traces lie beside the timing rows of a recorded machine: only the latter are points."""
    points = validation.read_points(Path("experiments/reference") / machine)
    known = {operator: set(arms) for operator, arms in validation.ARMS.items()}
    assert {p.operator for p in points} == set(known)
    assert all(p.arm in known[p.operator] and p.measured > 0 for p in points)

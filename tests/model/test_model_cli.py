"""The command line: files with the documented columns, one useful line, one-line errors; studies and rows behind it."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.model import __main__ as cli
from experiments.model import intranode, operations, profile, rows, runner, scaleout, strategies, studies
from experiments.model.errors import ModelError


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines, one case an operator, small networks, one process."""
    monkeypatch.setattr(profile, "names", lambda: ["h200-x2", "mi210-2node", "mi210-x4"])
    every = rows.cases
    monkeypatch.setattr(rows, "cases", lambda operator: every(operator)[:1])
    where = studies.Where(orders=(("h200-x2", "gemm_all_to_all"),))
    monkeypatch.setattr(studies, "Where", lambda: where)
    monkeypatch.setattr(runner, "mapper", runner.serial)
    monkeypatch.setattr(scaleout, "NODES", (16,))
    monkeypatch.setattr(scaleout, "STUDY_NODES", 16)
    monkeypatch.setattr(scaleout, "SWEEP_NODES", 16)
    monkeypatch.setattr(scaleout.run, "__defaults__", (16,))


FILES = {
    "intranode": "timing",
    "sensitivity": "sensitivity",
    "reduction": "reduction",
    "skew": "skew",
    "occupancy": "occupancy",
    "traffic": "traffic",
    "assumptions": "assumptions",
    "machine_profiles": "machine_profiles",
}
SCALE_FILES = ("scaleout", "scaleout_reduction", "scaleout_sweep", "simulation_setup")


def _check(folder: Path, name: str, kind: str) -> pd.DataFrame:
    """Read a file by the artifact's own schema."""
    from artifact import results

    assert (folder / f"{name}.json").exists()
    return results.read(folder / f"{name}.csv", kind)


@pytest.mark.usefixtures("few")
def test_intranode_writes_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["intranode", "--out", str(tmp_path)]) == 0
    assert "times of 3 machines (model, " in capsys.readouterr().out.splitlines()[-1]
    frames = {name: _check(tmp_path, name, kind) for name, kind in FILES.items()}
    timing = frames["intranode"]
    assert set(timing["strategy"]) == {"compute", *strategies.STRATEGIES}
    assert set(timing["status"]) == {"ok", "skipped"}
    assert timing[timing["status"] == "skipped"]["reason"].ne("").all()
    ok = timing[timing["status"] == "ok"]
    communicating = ok[ok["strategy"] != "compute"]
    assert (communicating["time_us"] >= communicating["limit_us"] * 0.999).all()
    band = frames["reduction"]
    assert (band["low_percent"] <= band["reduction_percent"]).all()
    assert (band["reduction_percent"] <= band["high_percent"]).all()
    assert len(frames["sensitivity"]) == len(band) * len(intranode.POINTS) * len(intranode.BAND_STRATEGIES)
    assert set(frames["skew"]["order"]) == {"remote_first", "oblivious"}
    told = frames["assumptions"].groupby("machine")["assumption"].unique()
    assert {"destinations interleaved", "both"} <= set(told["mi210-x4"])
    assert set(told["h200-x2"]) == {"as assumed", "destinations interleaved"}
    assert not {"destinations interleaved", "both"} & set(told["mi210-2node"])  # no such order over a NIC
    # The same bytes leave whether at once or over the kernel's life; the peak is what falls.
    for _, part in frames["traffic"].groupby(["machine", "case"]):
        sent = part.groupby("strategy")["link_gbps"].sum()
        assert sent["fused"] == pytest.approx(sent["bulk"], rel=1e-3)


@pytest.mark.usefixtures("few")
def test_scaleout_writes_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scaleout", "--out", str(tmp_path), "--max-nodes", "16"]) == 0
    assert "up to 16 nodes" in capsys.readouterr().out
    frames = {name: _check(tmp_path, name, name) for name in SCALE_FILES}
    assert set(frames["scaleout"]["component"]) == {"total", "embedding", "bottom_mlp", "exposed_all_to_all_forward", "interaction",
                                                    "top_mlp", "exposed_all_to_all_backward", "embedding_update", "exposed_all_reduce"}  # fmt: skip
    assert set(frames["scaleout"]["scaling"]) == {"strong", "weak", "growing"}
    assert len(frames["scaleout_sweep"]) == 12
    assert frames["simulation_setup"]["source"].ne("").all()


def test_validate_without_measurements_succeeds_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", "--out", str(tmp_path / "out"), "--reference", str(tmp_path)]) == 0
    assert "h200-x2: not validated: no two-GPU measurements recorded" in capsys.readouterr().out
    for name in ("validation", "validation_constants", "validation_summary"):
        _check(tmp_path / "out", name, name)


def test_mistakes_are_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scaleout", "--out", str(tmp_path), "--max-nodes", "100"]) == 2
    message = capsys.readouterr().err
    assert message == "error: max nodes is 100; allowed: 16, 32, 64, 128, 256, 512, 1024\n"
    (tmp_path / "file").write_text("")
    assert cli.main(["validate", "--out", str(tmp_path / "file"), "--reference", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_case_lists_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for operator in operations.OPERATORS:
        assert len(rows.cases(operator)) >= 8
    monkeypatch.setattr(rows, "HERE", tmp_path)
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "gemv_all_reduce.csv"
    for text, complaint in (
        ("case,m\na,1\n", "with dtype"),
        ("case,m,dtype\na,1,float32\na,2,float32\n", "each once"),
        ("case,m,dtype\na,1,int8\n", "allowed: float32"),
        ("case,m,dtype\na,,float32\n", "empty cells"),
    ):
        path.write_text(text)
        with pytest.raises(ModelError, match=complaint):
            rows.cases("gemv_all_reduce")
    with pytest.raises(ModelError, match="case list is 'gemm_all_to_all.csv'"):
        rows.cases("gemm_all_to_all")


def test_workers_keep_the_order_and_pass_on_failures() -> None:
    assert runner.mapper(abs, [-3, -1, -2], "test") == [3, 1, 2]
    with pytest.raises(TypeError):
        runner.mapper(abs, [-3, "x"], "test")


def test_assumption_study_names_what_decides() -> None:
    case = next(c for c in rows.cases("embedding_all_to_all") if c["case"] == "1024|64 L8")
    found = {
        r["assumption"]: r["reduction_percent"] for r in studies.assumptions("mi210-x4", "embedding_all_to_all", case)
    }
    assert found["destinations interleaved"] > found["as assumed"] + 20  # one link at a time, or three

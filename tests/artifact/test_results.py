"""Result files: whole or none, typed, and one line about the first cell that does not fit."""

import json
import os
import re

import pytest
import synthetic_rows as rows

from artifact import claims, evidence, provenance, record, results
from artifact.errors import ArtifactError
from artifact.files import write_text

UNITS = re.compile(r"(_us|_s|_percent|_bytes|bytes_\w+|_gbps|_mb|_scale)$")
UNITLESS = {"max_abs_error", "bound", "flops", "occupancy", "pooling", "mlp_width", "profile_value", "fitted_value"}


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_rows_survive_a_round_trip(tmp_path):
    frame = rows.timing({"a": 0.8}, samples=3)
    results.write(frame, tmp_path / "t.csv", "timing")
    back = results.read(tmp_path / "t.csv", "timing")
    assert list(back.columns) == list(frame.columns) and len(back) == len(frame)
    assert back["time_us"].round(3).tolist() == frame["time_us"].round(3).tolist()


@pytest.mark.parametrize(
    "column, value, expected",
    [
        ("time_us", "fast", "column time_us, line 3 is 'fast'; expected a number"),
        ("time_us", "-1", "column time_us, line 3 is -1.0; expected at least (0.0)"),
        ("status", "good", "column status, line 3 is 'good'; expected one of"),
        ("world_size", "1.5", "column world_size, line 3 is '1.5'; expected a whole number"),
        ("operator", "", "column operator, line 3 is ''; expected must not be empty"),
        ("backend", "cuda", "column backend, line 3 is 'cuda'; expected one of"),
    ],
)
def test_a_corrupt_cell_is_named(tmp_path, column, value, expected):
    frame = rows.timing({"a": 0.8}, samples=3).astype(object)
    frame.loc[1, column] = value
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ArtifactError) as error:
        results.read(tmp_path / "t.csv", "timing")
    assert one_line(error).startswith(f"{tmp_path / 't.csv'}: {expected}")


def test_a_missing_column_and_a_missing_file(tmp_path):
    rows.timing({"a": 0.8}, samples=1).drop(columns="face").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ArtifactError, match="column face is missing"):
        results.read(tmp_path / "t.csv", "timing")
    with pytest.raises(ArtifactError, match="is missing"):
        results.read(tmp_path / "none.csv", "timing")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtifactError, match="is not a CSV file"):
        results.read(tmp_path / "b.csv", "timing")


def test_numbers_have_units_in_their_names():
    for kind, schema in results.KINDS.items():
        for name, column in schema.columns.items():
            if str(column.dtype).startswith("float"):
                assert UNITS.search(name) or name in UNITLESS, f"{kind}.{name}"


def test_a_failed_case_keeps_its_row():
    frame = rows.timing({"a": 0.8}, samples=2).astype(object)
    frame.loc[0, ["status", "reason", "time_us"]] = ["failed", "wrong result on rank 1", None]
    checked = results.validate(frame, "timing", "t")
    assert len(checked) == len(frame) and results.counted(checked) == "9 ok, 1 failed"


def test_an_unwritable_place_gives_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot write"):
        write_text(tmp_path / "file" / "x.txt", "text")


def test_a_full_disk_gives_one_line_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_text(tmp_path / "x.txt", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ArtifactError, match="No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.txt"]


def test_provenance_is_complete_and_read_back(tmp_path):
    path = write_text(tmp_path / "rows.csv", "a\n")
    write_text(provenance.sidecar(path), json.dumps({"rates": 1}))
    block = provenance.collect(
        backend="emulator", machine="cpu", command="c", started=provenance.now(), sources=[path], seed=1
    )
    provenance.write(path, block)
    provenance.write(path, block)  # once more: the run's own notes stay
    found = provenance.read(path)
    assert set(provenance.FIELDS) <= set(found) and found["notes"] == {"rates": 1}
    assert found["sources_sha256"] == provenance.content_hash([path])
    assert "HOME" not in found["environment"]
    write_text(provenance.sidecar(path), json.dumps({k: v for k, v in found.items() if k != "seed"}))
    with pytest.raises(ArtifactError, match="field seed is missing"):
        provenance.read(path)
    with pytest.raises(ArtifactError, match="backend is 'cuda'"):
        provenance.collect(backend="cuda", machine="cpu", command="c", started="")


COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2]); sys.exit(int(sys.argv[3]))"


def recorded(tmp_path, frame, status: int) -> int:
    import sys

    source, out = tmp_path / "made.csv", tmp_path / "results" / "rows.csv"
    frame.to_csv(source, index=False)
    command = [sys.executable, "-c", COPY, str(source), str(out), str(status)]
    options = [
        "--kind",
        "verify",
        "--out",
        str(out),
        "--backend",
        "emulator",
        "--machine",
        "cpu",
        "--keep",
        str(tmp_path / "failed"),
        "--",
        *command,
    ]
    return record.main(options)


def test_a_recorded_command_is_checked_and_gets_provenance(tmp_path):
    assert recorded(tmp_path, rows.verify(["o"]), 0) == 0
    assert provenance.read(tmp_path / "results" / "rows.csv")["backend"] == "emulator"


def test_rows_of_a_failed_command_are_kept_and_its_status_passed_on(tmp_path, capsys):
    assert recorded(tmp_path, rows.verify(["o"], status="failed"), 1) == 1
    assert (tmp_path / "failed" / "rows.csv").exists() and "rows kept in" in capsys.readouterr().err


def test_rows_that_do_not_fit_fail_a_command_that_succeeded(tmp_path, capsys):
    assert recorded(tmp_path, rows.verify(["o"], status="fine"), 0) == 1
    assert "column status, line 2 is 'fine'" in capsys.readouterr().err


def test_emulator_rows_judge_no_time():
    frame = rows.timing({"a": 0.5}).assign(backend="emulator")
    judged = claims.judge_all(evidence.Evidence("emulator", measured=frame, recorded=frame))
    assert all("not evaluated" in str(j.this_run) for j in judged if j.claim.kind == "performance")
    assert all(j.reference is None for j in judged)

"""The record's checksums, its command line, and the tuned choices."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments import cases, record, tune
from experiments.errors import ExperimentError
from experiments.measure import run
from experiments.studies import engine
from kernels import tuning


def test_manifest_finds_a_changed_and_a_missing_file(tmp_path: Path) -> None:
    for name in ("a.csv", "a.json"):
        (tmp_path / name).write_text(name)
    record.write_manifest(tmp_path)
    assert record.check_manifest(tmp_path) == 2
    (tmp_path / "a.csv").write_text("changed")
    with pytest.raises(ExperimentError, match=r"checksum of .*/a.csv"):
        record.check_manifest(tmp_path)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(ExperimentError, match=r"a.csv'; allowed: an existing file"):
        record.check_manifest(tmp_path)


def test_recorded_machines_agree_with_their_manifests() -> None:
    for folder in sorted(p for p in record.REFERENCE.iterdir() if p.is_dir()) if record.REFERENCE.is_dir() else []:
        assert record.check_manifest(folder) > 0


@pytest.mark.parametrize("name", ["h200", "h200-x3", "H200-x2"])
def test_machine_names_say_how_many(name: str) -> None:
    with pytest.raises(ExperimentError, match="--machine"):
        record.world_of(name)
    assert record.world_of("mi300x-x8") == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpus_it_says_so() -> None:
    with pytest.raises(ExperimentError, match="GPUs is 0; allowed: 2 for h200-x2"):
        record.main(["--machine", "h200-x2"])


def test_notes_survive_provenance(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x\n")
    run.write_notes(path, {"runs": [1], "cases": {"c": 2}})
    record.write_provenance(path, "h200-x1", "command", "2026-01-01T00:00:00+00:00", None, "0" * 40)
    assert json.loads(path.with_suffix(".json").read_text())["backend"] == "gpu"
    assert run.read_notes(path) == {"runs": [1], "cases": {"c": 2}}


ENTRY = {"operator": "gemv_all_reduce", "role": "fused", "resident": 1000, "config": {"grid": 500, "num_warps": 4}}


def entry(**problem: object) -> dict:
    return ENTRY | {"case": str(problem), "problem": problem, "time_us": 1.0}


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tuning, "FOLDER", tmp_path)
    monkeypatch.setattr(tuning, "_name", lambda index: "NVIDIA H200")
    tuning.entries.cache_clear()
    path = tuning.file_of("NVIDIA H200")
    tune.merge(
        path,
        "NVIDIA H200",
        [entry(width="2 bytes", m=1000, world_size=2), entry(width="2 bytes", m=8000, world_size=1)],
    )
    yield path
    tuning.entries.cache_clear()


def rank(share: int, device: str = "cuda") -> SimpleNamespace:
    return SimpleNamespace(
        device=torch.device(device, 0 if device == "cuda" else None), state={}, max_resident=lambda warps: 1000 // share
    )


def test_nearest_problem_wins_and_words_must_match(tuned: Path) -> None:
    near = tuning.nearest("NVIDIA H200", "gemv_all_reduce", "fused", {"width": "2 bytes", "m": 1500, "world_size": 2})
    assert near is not None
    assert near["problem"]["m"] == 1000
    assert (
        tuning.nearest("NVIDIA H200", "gemv_all_reduce", "fused", {"width": "4 bytes", "m": 1000, "world_size": 2})
        is None
    )
    assert (
        tuning.nearest("NVIDIA H200", "gemv_all_reduce", "compute", {"width": "2 bytes", "m": 1000, "world_size": 2})
        is None
    )
    far = {"width": "2 bytes", "m": 100_000_000, "world_size": 2}
    assert tuning.nearest("NVIDIA H200", "gemv_all_reduce", "fused", far) is None
    assert (
        tuning.nearest("Some GPU", "gemv_all_reduce", "fused", {"width": "2 bytes", "m": 1000, "world_size": 2}) is None
    )


def test_grid_is_cut_to_the_share_and_further_for_another_world(tuned: Path) -> None:
    def grid(share: int, **problem: object) -> int:
        return tuning.choose(rank(share), "gemv_all_reduce", "fused", {"width": "2 bytes", **problem})["grid"]

    assert grid(1, m=1000, world_size=2) == 500
    assert grid(2, m=1000, world_size=2) == 250
    assert grid(4, m=8000, world_size=4) == 62  # tuned for one rank: a quarter of this rank's 250
    assert tuning.choose(rank(1, "cpu"), "gemv_all_reduce", "fused", {"width": "2 bytes", "m": 1000}) is None


def test_merging_replaces_the_same_case(tuned: Path) -> None:
    tune.merge(
        tuned, "NVIDIA H200", [entry(width="2 bytes", m=1000, world_size=2) | {"time_us": 0.5, "refused": ["x"]}]
    )
    found = json.loads(tuned.read_text())["entries"]
    assert sorted(e["time_us"] for e in found) == [0.5, 1.0]
    assert not any("refused" in e for e in found)


@pytest.mark.parametrize("operator", cases.OPERATORS)
def test_tuned_cases_exist(operator: str) -> None:
    assert set(tune.TUNED[operator]) <= {c["case"] for c in cases.timing(operator)}


@pytest.mark.parametrize("study", ["occupancy", "order", "staging", "timeline"])
def test_study_cases_exist(study: str) -> None:
    assert {operator for operator, _ in engine.jobs(study)} >= {"embedding_all_to_all", "gemm_all_to_all"}

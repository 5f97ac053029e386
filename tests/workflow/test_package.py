"""The archive: what is in it agrees with its checksums and its crate, and the workflow starts afresh where it is unpacked."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from artifact import __version__, package
from artifact.files import sha256

NAME = f"fusedcc-{__version__}"


@pytest.fixture(scope="module")
def run(workflow) -> Path:
    """A run's results, made up, with one of those that stay out."""
    folder = workflow.folder / "results" / "emulator"
    for name in ("claims.md", "figures/fig_order_skew.svg", "logs/fig_order_skew.csv", "failed/sample.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    block = {"started": "2026-12-01T10:00:00+00:00", "ended": "2026-12-01T10:05:00+00:00"}
    (folder / "claims.json").write_text(json.dumps(block))
    return folder


@pytest.fixture(scope="module")
def unpacked(workflow, run, tmp_path_factory) -> Path:
    content, _, _ = package.build(workflow.folder, run)
    folder = tmp_path_factory.mktemp("unpacked") / "a folder"
    folder.mkdir()
    (folder / "archive.tar.gz").write_bytes(content)
    with tarfile.open(folder / "archive.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def test_every_file_has_its_checksum(unpacked):
    lines = (unpacked / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    there = {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    assert there == {*listed, "SHA256SUMS"}
    assert all(hashlib.sha256((unpacked / name).read_bytes()).hexdigest() == digest for name, digest in listed.items())


def test_the_crate_names_workflow_run_and_results(unpacked):
    graph = {e["@id"]: e for e in json.loads((unpacked / package.CRATE).read_text())["@graph"]}
    action = graph["#run"]
    assert graph["./"]["version"] == __version__ and graph["./"]["mainEntity"] == action["instrument"]
    assert (action["startTime"], action["endTime"]) == ("2026-12-01T10:00:00+00:00", "2026-12-01T10:05:00+00:00")
    results = [entity["@id"] for entity in action["result"]]
    assert {"published/emulator/claims.md", "published/emulator/figures/fig_order_skew.svg"} <= set(results)
    assert not any("/logs/" in name or "/failed/" in name for name in results)
    for name in results:
        assert graph[name]["sha256"] == sha256(unpacked / name)


def test_the_same_content_gives_the_same_archive(workflow, run):
    assert package.build(workflow.folder, run)[0] == package.build(workflow.folder, run)[0]


def test_an_archive_that_is_too_large_is_refused(workflow, run, monkeypatch):
    monkeypatch.setattr(package, "LIMIT_BYTES", 1000)
    with pytest.raises(package.ArtifactError, match="allowed: at most"):
        package.build(workflow.folder, run)


def test_the_workflow_starts_afresh_in_the_unpacked_archive(workflow, unpacked):
    """A published result must not pass for one that was made here."""
    assert not (unpacked / "results").exists()
    fresh = type(workflow)(unpacked)
    assert {"verify_cases", "list_operators", "hardware", "smoke"} <= fresh.planned(
        "smoke", "--config", "backend=emulator"
    )
    done = fresh.run("results/emulator/figures/tasks.svg", "--config", "backend=emulator")
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_unpacked_archive_can_be_packed_again(unpacked):
    names = {str(p.relative_to(unpacked)) for p in package.sources(unpacked)}
    assert "Snakefile" in names and not any(n.startswith("published/") or n == package.CRATE for n in names)

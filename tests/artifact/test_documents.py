"""Files that must agree with one another: claims, configuration, documents, locks, versions; and what must not be in any."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import artifact
from artifact import catalogue, claims, config, config_model, doctor, lock, manifest, package, render
from artifact.errors import ArtifactError
from artifact.files import ROOT
from artifact.verdicts import Status, Verdict

CLAIMS = claims.load()


def test_all_ten_claims_are_there_with_confidence():
    assert [c.id for c in CLAIMS.claims] == [f"P{i}" for i in range(1, 11)]
    for claim in CLAIMS.claims:
        for number in claim.paper:
            assert f"[{number.confidence}]" in str(number)
    assert all(
        n.confidence != "memory" for c in CLAIMS.claims for n in c.paper
    )  # recollections are never printed as the paper's
    assert CLAIMS.not_attempted and all(n.reason for n in CLAIMS.not_attempted)


def test_each_claim_has_a_figure_or_table_and_each_of_those_says_whom_it_serves():
    items = {**catalogue.FIGURES, **catalogue.TABLES}
    assert {c.target for c in CLAIMS.claims} <= set(items)
    assert {i for item in items.values() for i in item.claims} == {c.id for c in CLAIMS.claims}


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"kind": "magic"}, "claims.0.kind is 'magic'; allowed: 'performance'"),
        ({"extra": 1}, "unknown key 'claims.0.extra'"),
        ({"checks": [{"evidence": "model", "checker": "guess"}]}, "one of faster"),
    ],
)
def test_a_wrong_claims_file_is_refused_in_one_line(tmp_path, change, expected):
    text = yaml.safe_load(claims.FILE.read_text())
    text["claims"][0].update(change)
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(text))
    with pytest.raises(ArtifactError) as error:
        claims.load(path)
    assert expected in str(error.value) and "\n" not in str(error.value)


def row(status: Status) -> dict:
    return {"id": "P1", "title": "t", "this_run": Verdict(status, "why").as_dict(), "reference": None, "model": None}


def test_strict_fails_on_contradicted_claims_only(tmp_path):
    from artifact.files import write_json

    path = write_json(tmp_path / "claims.json", [row(s) for s in Status if s is not Status.CONTRADICTED])
    assert claims.strict(path) == []
    write_json(path, [row(Status.CONTRADICTED)])
    assert len(claims.strict(path)) == 1
    assert (
        claims.summary([row(Status.CONTRADICTED), row(Status.NOT_EVALUATED)])
        == "claims: 1 contradicted, 1 not evaluated"
    )


def test_generated_parts_are_up_to_date():
    for path in render.documents(ROOT):
        assert render.fill(path.read_text(), path.name) == path.read_text(), (
            f"{path.name}: run python -m artifact documents"
        )


def test_generated_configuration_is_up_to_date():
    for path, make in config.FILES.items():
        assert path.read_text() == make(), f"{path.name}: run python -m artifact config --write"
    assert config_model.load(ROOT / "config" / "config.yaml") == config_model.Config()


def test_readme_has_its_parts_in_order():
    headings = re.findall(r"^## (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    wanted = [
        "What it is, and what it is not",
        "Requirements",
        "Two commands",
        "Claims",
        "Commands",
        "Troubleshooting",
        "Layout",
    ]
    assert [h for h in headings if h in wanted] == wanted


def test_lock_environment_and_pyproject_agree():
    pins = lock.pins(lock.LOCK.read_text())
    environment = yaml.safe_load(lock.ENVIRONMENT.read_text())
    assert lock.pins(lock.ENVIRONMENT.read_text()) == pins
    for requirement in [*lock.requirements(), *lock.requirements("dev")]:
        assert lock.bare(requirement) in pins, requirement
        if "==" in requirement:
            assert pins[lock.bare(requirement)] == requirement.split("==")[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.13" and "python=3.11" in environment["dependencies"]
    assert not any("+" in version or name.startswith("nvidia-c") for name, version in pins.items())


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert artifact.__version__ == citation["version"] == project["version"]
    assert f"## {artifact.__version__} (" in (ROOT / "CHANGELOG.md").read_text()
    assert (
        citation["license"] == project["license"] == "Apache-2.0" and "Apache License" in (ROOT / "LICENSE").read_text()
    )


def test_citation_is_valid():
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.citation-file-format",
        "CITATION.cff",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def texts():
    for path in package.sources(ROOT):
        if path.suffix in (".py", ".md", ".smk", ".yaml", ".yml", ".toml", ".cff", ".rst") or path.name in (
            "Snakefile",
            "Makefile",
        ):
            yield path.relative_to(ROOT), path.read_text()


def test_nothing_unfinished_and_no_machine_in_the_files():
    unfinished = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XXX" + r"X)\b")
    machine = re.compile(r"(?<![\w.])/(?:root|work|home/\w+)/|\b(?:\d{1,3}\.){3}\d{1,3}\b|\bmlx5_|\beth\d\b")
    for name, text in texts():
        assert not unfinished.search(text), name
        found = machine.search(text)
        assert not found or found.group(0) in ("127.0.0.1", "0.0.0.0"), f"{name}: {found.group(0)}"


def test_no_number_of_the_paper_outside_claims():
    """Float literals in plotting code that equal a number of the paper: the auditor's first search."""
    numbers = {
        n.value for c in CLAIMS.claims for n in c.paper if n.value is not None and n.value > 10 and n.value != 20.0
    }
    for folder in ("figures", "paper_tables"):
        for path in sorted((ROOT / folder).glob("*.py")):
            found = {
                n.value
                for n in ast.walk(ast.parse(path.read_text()))
                if isinstance(n, ast.Constant) and isinstance(n.value, int | float)
            }
            assert not found & numbers, f"{path.name}: {found & numbers}"


def test_records_agree_with_their_checksums():
    for machine in manifest.machines(ROOT):
        assert manifest.check_folder(manifest.folder_of(ROOT) / machine)


def probes(**changes) -> doctor.Probes:
    found = {"torch": "2.13.0", "triton": "3.7.1"}
    facts = {
        "version": lambda name: found.get(name, "1.0"),
        "gpus": tuple,
        "peer_access": lambda: False,
        "free_bytes": lambda folder: 1 << 40,
        "which": lambda name: f"/bin/{name}",
        "has_module": lambda name: False,
        "python": (3, 11),
    }
    return doctor.Probes(**(facts | changes))


@pytest.mark.parametrize(
    "changes, feature, state",
    [
        ({}, "Python", "ok"),
        ({"python": (3, 14)}, "Python", "missing"),
        ({"version": lambda name: None if name == "simpy" else "2.13.0"}, "packages", "missing"),
        ({"version": lambda name: {"torch": "2.11.0", "triton": "3.6.0"}.get(name, "1")}, "torch + triton", "ok"),
        ({"version": lambda name: {"torch": "2.9.0", "triton": "3.5.0"}.get(name, "1")}, "torch + triton", "skipped"),
        ({"free_bytes": lambda folder: 0}, "shared memory", "missing"),
        ({}, "measuring", "skipped"),
        ({"gpus": lambda: ("H200", "H200")}, "measuring", "skipped"),
        ({"gpus": lambda: ("H200", "H200"), "peer_access": lambda: True}, "measuring", "ok"),
        ({"which": lambda name: None}, "C compiler", "skipped"),
    ],
)
def test_doctor(changes, feature, state):
    findings = doctor.examine(probes(**changes))
    assert {f.feature: f.state for f in findings}[feature] == state
    assert ("cannot run here" in doctor.report(findings)) == any(f.state == "missing" for f in findings)

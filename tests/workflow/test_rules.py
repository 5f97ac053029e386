"""What every rule declares, and that its declared sources cover what its command imports."""

import re
import subprocess
import sys

import pytest

from artifact.files import ROOT
from artifact.sources import closure, modules

RULES = ROOT / "artifact" / "workflow" / "rules"
TARGETS = {"all", "full", "smoke", "verify", "build", "model", "figures", "tables", "claims"}


def rules() -> dict[str, str]:
    found = {}
    for path in sorted(RULES.glob("*.smk")):
        for name, text in re.findall(
            r"^ *rule ?(\w*):\n(.*?)(?=^ *rule |\Z)", path.read_text(), re.MULTILINE | re.DOTALL
        ):
            found[name or path.stem] = text
    return found


def test_all_rules_are_seen():
    assert len(rules()) >= 20


@pytest.mark.parametrize("name", sorted(rules()))
def test_what_a_rule_declares(name):
    text = rules()[name]
    assert text.lstrip().startswith('"""'), "docstring first"
    assert "retries:" not in text and not re.search(r"^\s*run:", text, re.MULTILINE)
    if name not in TARGETS:
        for key in ("log:", "benchmark:", "resources:", "conda:", "shell:", "src=closure("):
            assert key in text, key
        assert "tee {log}" in text


def test_rules_on_gpus_have_the_machine_to_themselves():
    """One at a time (the profile has gpu=1), and on all cores, so that nothing else runs beside a measurement."""
    on_gpus = {name: text for name, text in rules().items() if re.search(r"\bgpu=1\b", text)}
    assert set(on_gpus) == {"measure_operator", "verify_cases"}
    assert all("threads: workflow.cores" in text for text in on_gpus.values())


def test_wildcards_are_constrained():
    constrained = re.search(r"wildcard_constraints:\n(.*?)\n\n", (RULES / "common.smk").read_text(), re.DOTALL).group(1)
    used = set(re.findall(r"\{wildcards\.(\w+)\}", "".join(p.read_text() for p in RULES.glob("*.smk"))))
    assert used and all(f"{name}=" in constrained for name in used)


LOADED = (
    "import importlib, sys; [importlib.import_module(m) for m in sys.argv[1:]];"
    " print(chr(10).join(sorted(str(m.__file__) for m in list(sys.modules.values()) if getattr(m, '__file__', None))))"
)


@pytest.mark.parametrize(
    "entries",
    [
        ("experiments.verify.__main__",), ("kernels.build.__main__", "kernels.build.catalog", "kernels.build.worker"), ("experiments.model.__main__",),
        ("experiments.measure.__main__",), ("artifact.record",), ("artifact.judge",), ("artifact.doctor",), ("artifact.package",),
        ("figures.__main__", "figures.order_skew"), ("figures.__main__", "figures.gemv_all_reduce"), ("paper_tables.__main__", "paper_tables.claims"),
    ],
)  # fmt: skip
def test_declared_sources_cover_what_is_imported(entries):
    """Against the interpreter itself: every file of this repository that is loaded must be declared."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *entries], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    loaded = {line for line in done.stdout.splitlines() if line.startswith(f"{ROOT}/") and "/.venv/" not in line}
    declared = {str(ROOT / name) for name in closure(*entries)}
    assert loaded and not loaded - declared


def test_a_figure_does_not_depend_on_another():
    assert not {"figures.scale_out", "figures.occupancy"} & set(modules(["figures.__main__", "figures.order_skew"]))


def test_the_model_does_not_depend_on_the_emulator():
    assert not any(name.startswith("emulator") for name in closure("experiments.model"))

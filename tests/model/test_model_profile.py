"""Profiles: what is there is complete and sourced, and the schema refuses everything else with one line."""

import copy
from pathlib import Path

import pytest
import yaml
from model_machines import machine_of

from experiments.model import machine as machines
from experiments.model import profile, workload
from experiments.model.errors import ModelError

WANTED = {"h200-x1", "h200-x2", "h200-x4", "h200-x8", "mi210-x4", "mi210-2node", "mi300x-node", "h100-node"}


def test_every_named_machine_is_there_with_units_and_sources() -> None:
    assert set(profile.names()) >= WANTED
    for name in profile.names():
        found = profile.quantities(profile.load(name))
        assert len(found) > 30
        assert all(q.unit and len(q.source) > 6 for _, q in found)


def test_a_derived_profile_changes_only_what_it_states() -> None:
    base, derived = profile.load("h200-x2"), profile.load("h200-x4")
    assert derived.gpus.value == 4
    assert derived.gpu == base.gpu
    assert derived.library.alpha_all_reduce != base.library.alpha_all_reduce
    assert derived.library.efficiency_all_reduce == base.library.efficiency_all_reduce


def _raw() -> dict:
    return yaml.safe_load((profile.PROFILES / "h200-x2.yaml").read_text())


def _set(raw: dict, path: str, value: object) -> None:
    *parents, last = path.split(".")
    for key in parents:
        raw = raw[key]
    if value is None:
        del raw[last]
    else:
        raw[last] = value


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("gpu.memory_peak.unit", "TB/s", "gpu.memory_peak: unit is 'TB/s'; allowed: 'GB/s'"),
        ("gpu.memory_peak.source", None, "gpu.memory_peak.source: Field required"),
        ("gpu.memory_peak.source", "?", "gpu.memory_peak.source"),
        ("gpu.memory_peak", 4800, "gpu.memory_peak"),
        ("gpu.launch.value", -1, "gpu.launch: value is -1.0"),
        ("gpu.launch.value", float("nan"), "gpu.launch: value is nan"),
        ("fabric.kind", "ethernet", "fabric.kind"),
        ("fabric.color", "red", "fabric.color: Extra inputs are not permitted"),
        ("library.efficiency_all_reduce.value", 1.5, "library.efficiency_all_reduce: value is 1.5"),
        ("kernels.fft", {}, "kernels.fft"),
        ("gpu.name", None, "gpu.name: Field required"),
    ],
)
def test_the_schema_rejects(path: str, value: object, complaint: str) -> None:
    raw = copy.deepcopy(_raw())
    _set(raw, path, value)
    with pytest.raises(ModelError) as error:
        profile.validated(raw, profile.Profile, "h200-x2.yaml")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_and_broken_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="machine is 'gb200'; allowed: h100-node"):
        profile.load("gb200")
    monkeypatch.setattr(profile, "PROFILES", tmp_path)
    (tmp_path / "broken.yaml").write_text("a: [1,\n")
    with pytest.raises(ModelError, match=r"broken.yaml: not YAML"):
        profile.load("broken")
    (tmp_path / "broken.yaml").write_text("- 1\n")
    with pytest.raises(ModelError, match="allowed: a mapping"):
        profile.load("broken")
    (tmp_path / "broken.yaml").write_text("base: broken\n")
    with pytest.raises(ModelError, match=r"broken.yaml: base is 'broken'"):
        profile.load("broken")


def test_a_kernel_must_fit_the_wave_slots() -> None:
    found = profile.load("mi210-x4")
    wide = found.kernels["gemv_all_reduce"].wgs_per_cu.model_copy(update={"value": 9.0})
    kernels = {
        **found.kernels,
        "gemv_all_reduce": found.kernels["gemv_all_reduce"].model_copy(update={"wgs_per_cu": wide}),
    }
    with pytest.raises(ModelError, match="gemv_all_reduce.wgs_per_cu is 36; allowed: at most 32 waves a CU"):
        machines.from_profile(found.model_copy(update={"kernels": kernels}))


def test_workloads_and_networks_load_and_are_sourced() -> None:
    for name in workload.workload_names():
        assert len(profile.quantities(workload.load_workload(name))) == 9
    for name in ("torus2d", "torus3d", "fat_tree", "dragonfly"):
        assert workload.load_network(name).topology == name
    with pytest.raises(ModelError, match="workload is 'resnet'; allowed: dlrm-43x682"):
        workload.load_workload("resnet")


def test_scaling_a_machine_changes_what_it_says() -> None:
    nominal = machine_of("mi210-x4")
    scaled = nominal.scaled(link=0.7, memory=1.2, launch=2.0)
    assert scaled.link == pytest.approx(0.7 * nominal.link)
    assert scaled.memory == pytest.approx(1.2 * nominal.memory)
    assert (scaled.launch, scaled.alpha_all_reduce) == (2 * nominal.launch, 2 * nominal.alpha_all_reduce)
    assert scaled.flag == nominal.flag
    with pytest.raises(ModelError, match="link scale is 0"):
        nominal.scaled(link=0)


def test_collective_is_alpha_plus_bytes_through_the_links() -> None:
    pairs = machine_of("mi210-x4")
    size = 64e6
    sent = 3 / 4 * size / (0.8 * 3 * pairs.link)
    assert pairs.collective("all_to_all", size) == pytest.approx(pairs.alpha_all_to_all + sent)
    assert pairs.collective("all_reduce", size) == pytest.approx(pairs.alpha_all_reduce + 2 * sent)
    assert machine_of("h200-x1").collective("all_reduce", size) == 0

"""The litmus kernels: they do what their text says, and what the emulator shows stays within what the memory model produces."""

from collections import Counter
from pathlib import Path

import pytest

from emulator import Ranks
from experiments import rows
from experiments.litmus import run
from experiments.litmus.table import CASES, Case
from experiments.measure.run import Clock


class Source:
    """Emulated ranks as the recorder sees ranks."""

    writes = True

    def __init__(self, ranks: Ranks, world_size: int):
        self.ranks, self.world_size = ranks, world_size

    def agree(self, value: bool) -> bool:
        return value

    def run(self, *args: object) -> list:
        return self.ranks.run(*args)


def named(name: str, placement: str) -> Case:
    return next(c for c in CASES if (c.name, c.placement) == (name, placement))


@pytest.mark.parametrize("world_size", [1, 2])
def test_what_the_emulator_shows_is_allowed_and_broken_orders_show(tmp_path: Path, world_size: int) -> None:
    path = tmp_path / "litmus.csv"
    with Ranks(world_size, heap_bytes=1 << 24, timeout_s=20.0) as ranks:
        assert run.run(Source(ranks, world_size), "cpu", path, Clock(300.0), "emulator", launches=6)
    found = {r["test"]: r for r in rows.read(path, run.COLUMNS)}
    assert set(found) == {c.name for c in CASES if c.world_size == world_size}
    assert {r["status"] for r in found.values()} == {"ok"}
    assert all(int(r["instances"]) == 6 * 16 for r in found.values())
    scope = "gpu" if world_size == 1 else "sys"
    for name in (f"message passing, relaxed.{scope}, acquire.{scope}", "tile and signal, no barrier"):
        assert int(found[name]["telling_seen"]) > 0, name  # seen at about one instance in five, each by itself
        assert found[name]["model"] == "allowed"
    assert found["tile and signal"]["model"] == "forbidden"


def test_a_record_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "litmus.csv"
    with Ranks(1, heap_bytes=1 << 24, timeout_s=20.0) as ranks:
        assert not run.run(Source(ranks, 1), "cpu", path, Clock(0.0), "emulator", launches=1)
        assert not path.exists()
    last = [run.row(case, Counter({"a=0 b=0": 3}), "emulator", "cpu") for case in CASES]
    rows.write(path, last, run.COLUMNS)
    before = path.read_bytes()
    assert run.run(Source(None, 2), "cpu", path, Clock(300.0), "emulator")  # nothing is left, no rank is asked
    assert path.read_bytes() == before


def test_an_outcome_that_the_model_does_not_produce_fails() -> None:
    good, bad = (named(n, "two GPUs") for n in ("message passing, relaxed.sys, relaxed.sys", "message passing, release.sys, acquire.sys"))  # fmt: skip
    seen = Counter({"a=1 b=0": 2, "a=1 b=1": 5})
    assert run.row(good, seen, "gpu", "m")["status"] == "ok"
    row = run.row(bad, seen, "gpu", "m")
    assert (row["status"], row["outside"], row["telling_seen"], row["instances"]) == ("failed", 2, 2, 7)
    assert row["reason"] == "not produced by the model: a=1 b=0"


def test_model_agrees_on_what_each_test_is_for() -> None:
    forbidden = {c.name for c in CASES if c.telling not in c.possible}
    for case in CASES:
        if case.shape == "tile and signal":
            assert (case.name in forbidden) == ("no barrier" not in case.name)
        if case.shape in ("store buffering", "independent reads"):
            assert (case.name in forbidden) == ("fence.sc" in case.name)
        if case.shape == "cumulativity":
            assert (case.name in forbidden) == ("release" in case.name)

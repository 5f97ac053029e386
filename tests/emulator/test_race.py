"""Broken kernels are reported, each within a few seeds and with what is missing; right ones never, nor equivalent ones."""

import re

import pytest

EQUIVALENT = [
    ("push", {"calls": 3}),
    ("push", {"AFTER": False}),  # Triton puts a barrier after the poll, whose result is used
    ("push", {"SPIN": "cas"}),
    ("push", {"SEM": "relaxed", "FENCE": True}),
    ("push", {"SPIN": "volatile, fence", "POLL": "relaxed"}),
    ("push", {"ORDER": "data first, flag by a lane"}),
    ("push", {"CONSUMED": False}),  # one call: nothing is reused
    ("gather", {}),
    ("own_tile", {"barrier": True, "shift": 3}),
    ("own_tile", {"barrier": False, "shift": 0}),  # each thread loads what it stored
    ("addresses", {"mode": "scattered"}),
    ("host_reads", {"wait": True}),
    ("host_reads", {"wait": True, "write": True}),
    ("descriptor", {"wait": "full"}),
    ("rdma", {"how": "fence"}),
    ("rdma", {"how": "quiet"}),
    ("rdma", {"how": "fence, own signal"}),
    ("rdma", {"how": "reuse after quiet"}),
    *(("narrow", {"dtype": d}) for d in ("int32", "uint8", "int64")),
]


@pytest.mark.parametrize(("program", "how"), EQUIVALENT, ids=[f"{p} {h}" for p, h in EQUIVALENT])
def test_right_kernels_are_not_reported(interpreting, program: str, how: dict) -> None:
    for run in interpreting("runs", program, seeds=30, **how):
        assert run.ok, str(run.reports[0])
        assert not any(run.results)


def test_the_right_push_is_clean_over_200_seeds(interpreting) -> None:
    for world_size in (2, 3):
        runs = interpreting("runs", "push", seeds=200 if world_size == 2 else 40, world_size=world_size, calls=2)
        assert [str(r) for run in runs for r in run.reports] == []
        assert sum(run.stats["stale_reads"] for run in runs) > len(runs)  # the adversary was there


BROKEN = [
    # program, how it is broken, kind of the report, what it must say, seeds of 20 that must catch it
    ("push", {"SEM": "relaxed"}, "race", r"`flags\[\d\]` of rank \d .* was written relaxed", 20),
    ("push", {"SEM": "acquire"}, "race", r"`flags\[\d\]` of rank \d .* was written relaxed", 20),
    ("push", {"SCOPE": "gpu"}, "scope", r"scopes \((gpu and system|system and gpu)\) do not include each other", 20),
    ("push", {"BEFORE": False}, "race", r"no block barrier is between the access and the release of the flag `flags", 20),
    ("push", {"BEFORE": False, "FENCE": True}, "race", r"no block barrier", 20),
    ("push", {"ORDER": "data first, flag by a lane", "BEFORE": False}, "race", r"no block barrier", 20),
    ("push", {"POLL": "relaxed"}, "race", r"rank \d WG \d read the flag `flags\[\d\]` of rank \d .* without acquiring it", 20),
    ("push", {"SPIN": "volatile"}, "race", r"without acquiring it", 20),
    ("push", {"SPIN": "plain"}, "race", r"accesses with a plain load what rank \d WG \d uses as a flag, which orders nothing", 20),
    ("push", {"SPIN": "none"}, "race|never written", r"has read no flag|has raised no flag|nobody has written", 20),
    ("push", {"ORDER": "flag first"}, "race|never written", r"has read no flag that rank \d WG \d raised after it|nobody has written", 20),
    ("push", {"SPIN": "any epoch", "calls": 2}, "race", r"has (read|raised) no flag", 12),
    ("push", {"CONSUMED": False, "calls": 2}, "race", r"load .* to rank \d WG \d store", 18),
    ("gather", {"count": "relaxed"}, "race", r"`counter\[0\]` of rank \d .* was written relaxed", 20),
    ("gather", {"count": "release"}, "race", r"read the flag `counter\[0\]` of rank \d .* without acquiring it", 20),
    ("gather", {"count": "acquire"}, "race", r"`counter\[0\]` of rank \d .* was written relaxed", 20),
    ("gather", {"last": 2}, "race|never written", r"has read no flag|has raised no flag|nobody has written", 20),
    ("own_tile", {"barrier": False, "shift": 3}, "lanes", r"no block barrier is between", 20),
    ("host_reads", {"wait": False}, "race", r"rank \d host torch clone replay_kernels.py", 15),
    ("host_reads", {"wait": False, "write": True}, "race", r"rank \d host torch zero_ replay_kernels.py", 15),
    ("descriptor", {"wait": "none"}, "race", r"asynchronous store was still in flight", 20),
    ("descriptor", {"wait": "read"}, "race", r"asynchronous store was still in flight", 20),
    ("rdma", {"how": "nothing"}, "race", r"nothing waited for it: no quiet, no fence", 20),
    ("rdma", {"how": "own signal only"}, "race", r"put .* `inbox\[\d\]`", 20),
    ("rdma", {"how": "no barrier"}, "race", r"one thread of the work-group issues the copy", 20),
    ("rdma", {"how": "reuse before quiet"}, "race", r"may still be reading its source", 20),
    ("addresses", {"mode": "foreign"}, "address", r"rank \d's heap that is valid on rank \d only", 20),
    ("addresses", {"mode": "past the end"}, "address", r"32 bytes past the end of `buf`", 20),
    ("addresses", {"mode": "never written"}, "never written", r"`buf\[0\]` of rank \d, which nobody has written", 20),
]  # fmt: skip


@pytest.mark.parametrize(("program", "how", "kind", "says", "caught"), BROKEN, ids=[f"{b[0]} {b[1]}" for b in BROKEN])
def test_broken_kernels_are_caught(interpreting, program: str, how: dict, kind: str, says: str, caught: int) -> None:
    runs = [run for run in interpreting("runs", program, seeds=20, **how) if not run.ok]
    assert len(runs) >= caught
    for run in runs:
        assert re.fullmatch(kind, run.reports[0].kind), str(run.reports[0])
        assert re.search(says, run.reports[0].text), str(run.reports[0])
        assert all(":" in site for site in run.reports[0].sites)


@pytest.mark.parametrize(
    ("how", "modes"),
    [
        # which control adversaries give wrong results when nobody looks for races
        ({}, set()),
        ({"SEM": "relaxed"}, {"late", "weak"}),
        ({"SCOPE": "gpu"}, {"late", "weak"}),
        ({"BEFORE": False}, {"late", "weak"}),
        ({"POLL": "relaxed"}, {"stale", "weak"}),
        ({"SPIN": "plain"}, {"stale", "weak"}),
        ({"SPIN": "none"}, {"sc", "late", "stale", "weak"}),
    ],
)
def test_wrong_values_by_adversary(interpreting, how: dict, modes: set[str]) -> None:
    """Sequential consistency shows none of the ordering bugs: the weak memory is what bites."""
    seen = set()
    for memory in ("sc", "late", "stale", "weak"):
        runs = interpreting("runs", "push", seeds=12, options={"races": False, "memory": memory}, **how)
        assert all(run.ok for run in runs)
        if any(any(run.results) for run in runs):
            seen.add(memory)
    assert seen == modes


FOREIGN = {
    "ring_all_reduce_cas": None,
    "one_shot_relaxed": r"`pad\[\d\]` of rank \d .* was written relaxed",
    "plain_spin": r"accesses with a plain load what rank \d WG \d uses as a flag",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_kernels_of_other_styles(interpreting, name: str) -> None:
    runs = interpreting("runs", f"tests.emulator.foreign.{name}:program", seeds=20, world_size=3)
    if FOREIGN[name] is None:
        assert [str(r) for run in runs for r in run.reports] == []
        assert not any(any(run.results) for run in runs)
    else:
        assert all(re.search(FOREIGN[name], run.reports[0].text) for run in runs)


def test_unordered_puts_and_asynchronous_stores_arrive_late(interpreting) -> None:
    """Wrong values too, not only races; never under sequential consistency."""
    for program, how in (
        ("rdma", {"how": "nothing"}),
        ("rdma", {"how": "own signal only"}),
        ("descriptor", {"wait": "read"}),
    ):
        for memory, wrong in (("sc", False), ("late", True), ("weak", True)):
            runs = interpreting("runs", program, seeds=8, options={"races": False, "memory": memory}, **how)
            assert any(any(run.results) for run in runs) == wrong, (program, how, memory)


def test_options_of_the_detector(interpreting) -> None:
    how = {"BEFORE": False, "calls": 2}
    (run,) = interpreting("runs", "push", seeds=1, options={"stop_at_first": False}, **how)
    assert len({(r.kind, r.sites) for r in run.reports}) == len(run.reports) >= 1  # once a pair of lines
    assert all(result is not None for result in run.results)
    assert all(
        r.ok for r in interpreting("runs", "push", seeds=3, options={"ignore": ("inbox",)}, CONSUMED=False, calls=2)
    )
    assert all(
        r.ok for r in interpreting("runs", "own_tile", seeds=3, options={"lanes": False}, barrier=False, shift=3)
    )
    assert all(r.ok for r in interpreting("runs", "host_reads", seeds=3, options={"host": False}, wait=False))
    assert all(
        r.ok
        for r in interpreting(
            "runs", "addresses", seeds=3, options={"poison": False, "races": False}, mode="never written"
        )
    )

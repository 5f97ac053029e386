"""Same seed, same run; recorded work-groups behave as interpreted ones; speed and memory."""

import pytest
import torch

import emulator


def test_same_seed_same_run_and_other_seeds_differ(interpreting) -> None:
    once = interpreting("runs", "push", seeds=12, calls=2)
    again = interpreting("runs", "push", seeds=12, calls=2)
    assert [r.digest for r in once] == [r.digest for r in again]
    assert [r.decisions for r in once] == [r.decisions for r in again]
    assert len({r.digest for r in once}) == 12


def test_digests_do_not_depend_on_machine_or_version(interpreting) -> None:
    """The same under triton 3.6.0, 3.7.1 and 3.9.0; `tests/emulator/digests.py` compares more, by hand."""
    runs = interpreting("runs", "gather", seeds=3)
    assert [r.digest for r in runs] == DIGESTS


DIGESTS = ["e563565426698c10", "28f51595340650da", "db2141253e32776d"]


def test_recorded_work_groups_do_what_interpreted_ones_do(interpreting) -> None:
    for program, how in (
        ("push", {"calls": 2}),
        ("gather", {}),
        ("push", {"BEFORE": False, "SPIN": "cas"}),
        ("rdma", {"how": "fence"}),
    ):
        recorded = interpreting("runs", program, seeds=30, first=500, **how)
        full = interpreting("runs", program, seeds=30, first=500, options={"record": False}, **how)
        assert [r.digest for r in recorded] == [r.digest for r in full]
        assert [[x.text for x in r.reports] for r in recorded] == [[x.text for x in r.reports] for r in full]


def test_wrong_values_are_the_same_recorded_or_not(interpreting) -> None:
    """Stale values send work-groups where no record leads: the interpreter takes over."""
    options = {"races": False, "memory": "weak"}
    recorded = interpreting("runs", "push", seeds=10, options=options, SEM="relaxed")
    full = interpreting("runs", "push", seeds=10, options=options | {"record": False}, SEM="relaxed")
    assert [(r.digest, r.results) for r in recorded] == [(r.digest, r.results) for r in full]
    assert any(any(r.results) for r in full)


def test_a_run_replays_from_its_decisions(interpreting) -> None:
    for program, how in (("push", {}), ("push", {"SEM": "relaxed"}), ("gather", {})):
        for digest, again in interpreting("replays", program, 10, **how):
            assert digest == again


def test_personalities_are_different_and_each_finds_the_bug(interpreting) -> None:
    digests = set()
    for personality in ("uniform", "pct", "round_robin", "ahead", "behind"):
        options = {"personality": personality}
        digests.add(tuple(r.digest for r in interpreting("runs", "push", seeds=3, options=options)))
        assert all(not r.ok for r in interpreting("runs", "push", seeds=5, options=options, BEFORE=False))
    assert len(digests) == 5


def test_speed(interpreting) -> None:
    """2 ranks x 4 work-groups x 8 tiles, about 180 memory operations, race detector on: schedules per second of CPU time."""
    assert interpreting("speed", "push", 100, block=256, CONSUMED=False) > 60  # well below what an idle core does


def test_memory_is_bounded(interpreting) -> None:
    assert interpreting("peak_growth", "push", 200, CONSUMED=False) < 4 << 20


def test_emulator_run_in_replay_mode() -> None:
    """From a process that may compile kernels: what each rank returned, or an error that says what was found."""
    assert emulator.run("tests.emulator.replay_kernels:push", 2, mode="replay", seed=3) == [0, 0]


def test_findings_are_errors_of_emulator_run() -> None:
    with pytest.raises(emulator.BadAddress, match="valid on rank . only"):
        emulator.run("tests.emulator.replay_kernels:addresses", 2, mode="replay", args=("foreign",))


def test_program_errors_name_rank_and_line(interpreting) -> None:
    (run,) = interpreting("runs", "push", seeds=1, SEM="release", wgs=4, tiles=8, block=64, SPIN="add", POLL="nonsense")
    assert run.reports[0].kind == "error"
    assert "rank" in run.reports[0].text


def test_results_come_back(interpreting) -> None:
    (run,) = interpreting("runs", "tests.emulator.replay_kernels:seeded", seeds=1)
    assert all(torch.equal(a, torch.arange(4.0)) for a in run.results)

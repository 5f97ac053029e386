"""What the harness decides without a GPU: order, rotation, limits, rows, what is suspect, what is wrong."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact import results
from experiments import rows
from experiments.measure import limits, schedule, table
from experiments.measure.schedule import Health

CASE = {"case": "c", "dtype": "bfloat16"}
RATES = limits.Rates(read_gbs=4000.0, gemm_tflops={"bfloat16": 800.0}, store_gbs=400.0, flag_us=1.5)
COUNTS = {"bytes_read": 8_000_000, "bytes_sent": 400_000, "flops": 16_000_000}


def report(times: list[float], sm: int = 1900, others: int = 0) -> dict[str, Any]:
    check = {"max_abs_error": 0.1, "bound": 0.2, "ok": True}
    arm = {"strategy": "fused", "face": "out", "graph": times, "eager": times[:2], "calls": 4, "check": check}
    own = arm | {"strategy": "compute", "face": "none"}
    health = {"sm_mhz": sm, "memory_mhz": 3200, "temperature_c": 50, "power_w": 500.0, "throttle": 0, "others": others}
    missing = {"strategy": "bulk", "face": "none", "reason": "not here"}
    return {
        "arms": {"fused.x": arm, "own": own, "lib": missing},
        "health": [health, health],
        "slots": 2,
        "seed": 1,
        "counts": COUNTS,
    }


def test_every_round_has_every_arm_in_an_order_of_its_own() -> None:
    rounds = schedule.order(["a", "b", "c", "d"], 40, seed=3)
    assert all(sorted(r) == ["a", "b", "c", "d"] for r in rounds)
    assert len({tuple(r) for r in rounds}) > 10
    assert rounds == schedule.order(["a", "b", "c", "d"], 40, seed=3)
    assert rounds != schedule.order(["a", "b", "c", "d"], 40, seed=4)


@pytest.mark.parametrize("bytes_read", [1 << 20, 17 << 20, 64 << 20, 1 << 29, 1 << 33])
def test_rotation_leaves_the_cache_behind(bytes_read: int) -> None:
    l2, memory = 60 << 20, 16 << 30
    n = schedule.slots(bytes_read, l2, memory)
    assert 2 <= n <= schedule.MAX_SLOTS
    assert n * bytes_read >= schedule.L2_TIMES * l2 or n == schedule.MAX_SLOTS
    assert n == 2 or n * bytes_read <= memory


@pytest.mark.parametrize("estimate", [0.5, 6.0, 130.0, 5000.0])
@pytest.mark.parametrize("n_slots", [2, 5, 24])
def test_a_graph_holds_whole_rounds_of_the_slots(estimate: float, n_slots: int) -> None:
    n = schedule.calls(estimate, n_slots)
    assert n % n_slots == 0
    assert n_slots <= n <= max(n_slots, schedule.MAX_CALLS)


def test_limit_is_the_slowest_resource_and_one_flag() -> None:
    assert RATES.limit_us(8_000_000, 0, 0, "bfloat16", False) == pytest.approx(2.0)
    assert RATES.limit_us(8_000_000, 4_000_000, 0, "bfloat16", False) == pytest.approx(10.0 + 1.5)
    assert RATES.limit_us(8_000_000, 4, 16_000_000_000, "bfloat16", True) == pytest.approx(20.0 + 1.5)
    assert RATES.limit_us(8_000_000, 4, 16_000_000_000, "bfloat16", False) == pytest.approx(2.0 + 1.5)


def test_rates_are_those_of_the_best_probe() -> None:
    def probe(arm: str, **fields: Any) -> SimpleNamespace:
        return SimpleNamespace(
            **({"arm": arm, "dtype": "float32", "bytes_read": 0, "bytes_sent": 0, "flops": 0, "per": 1} | fields)
        )

    found = limits.from_samples(
        [
            (probe("read", bytes_read=8_000_000), [3.0, 2.0, 2.0]),
            (probe("read", bytes_read=8_000_000), [4.0, 4.0, 1.0]),
            (probe("gemm", flops=8_000_000_000, dtype="bfloat16"), [10.0]),
            (probe("peer_store", bytes_sent=4_000_000), [10.0]),
            (probe("flag", per=1000), [1500.0, 1400.0, 1600.0]),
            (probe("flag", per=1000), []),
        ]
    )
    assert found == limits.Rates(4000.0, {"bfloat16": 800.0}, 400.0, 1.5)


def test_rows_take_the_slowest_rank_and_keep_every_sample(tmp_path: Path) -> None:
    found = table.case_rows("gemv_all_reduce", CASE, "m-x2", [report([5.0, 9.0, 4.0]), report([6.0, 1.0, 4.5])], RATES)
    graph = [r for r in found if r["arm"] == "fused.x" and r["mode"] == "graph"]
    assert [r["time_us"] for r in graph] == [6.0, 9.0, 4.5]
    assert graph[0]["limit_us"] == pytest.approx(2.0 + 1.5)
    assert next(r for r in found if r["arm"] == "own")["limit_us"] == pytest.approx(2.0)
    assert next(r for r in found if r["arm"] == "lib")["status"] == "missing"
    assert {r["status"] for r in found if r["arm"] != "lib"} == {"ok"}
    rows.write(tmp_path / "rows.csv", found, rows.TIMING)
    assert len(results.read(tmp_path / "rows.csv", "timing")) == len(found)


def test_a_wrong_result_has_no_time() -> None:
    bad = report([5.0, 5.0])
    bad["arms"]["fused.x"]["check"]["ok"] = False
    (row,) = [
        r
        for r in table.case_rows("gemv_all_reduce", CASE, "m-x2", [report([5.0, 5.0]), bad], RATES)
        if r["arm"] == "fused.x"
    ]
    assert row["status"] == "failed"
    assert row["reason"].startswith("wrong result on rank 1: error 0.1")
    assert "time_us" not in row


COOL = Health(1900, 3200, 50, 500.0, 0, 0)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (COOL, COOL, ""),
        (Health(), Health(), ""),
        (COOL, Health(1900, 3200, 50, 500.0, 0x4, 0), ""),  # the power cap of a full load
        (COOL, Health(1900, 3200, 50, 500.0, 0x24, 0), "throttled after (reasons 0x20)"),
        (COOL, Health(1900, 3200, 91, 500.0, 0, 0), "91 C after"),
        (Health(1900, 3200, 50, 500.0, 0, 2), COOL, "2 other processes before"),
        (COOL, Health(1900, 1600, 50, 500.0, 0, 0), "memory clock fell from 3200 to 1600 MHz"),
    ],
)
def test_suspect(before: Health, after: Health, reason: str) -> None:
    assert schedule.suspect(before, after) == reason


def test_suspect_samples_keep_their_times_and_say_why() -> None:
    found = table.case_rows("gemv_all_reduce", CASE, "m-x2", [report([5.0, 5.0]), report([5.0, 5.0], others=1)], RATES)
    timed = [r for r in found if "time_us" in r]
    assert {r["status"] for r in timed} == {"suspect"}
    assert timed[0]["reason"].startswith("rank 1: 1 other processes")


def test_summary_names_the_best_arms() -> None:
    one = report([5.0, 5.0])
    arms = one["arms"]
    arms["lib"] = copy.deepcopy(arms["own"]) | {"graph": [4.0, 4.0]}
    arms["lib+nccl"] = copy.deepcopy(arms["own"]) | {"strategy": "bulk", "graph": [8.0, 8.0]}
    line = table.summary(table.case_rows("gemv_all_reduce", CASE, "m-x2", [one, one], RATES))[1]
    assert line.split() == ["c", "3.5", "5.0", "5.0", "4.0", "8.0", "40", "lib,", "lib+nccl"]

"""The work-group replay: closed forms, conservation, bounds, monotonicity."""

from dataclasses import replace

import numpy as np
import pytest
from model_machines import CASES, machine_of

from experiments.model import offload, operations, strategies
from experiments.model.errors import ModelError
from experiments.model.kernel import replay
from experiments.model.machine import US, Machine
from experiments.model.plans import Operation
from kernels.plan import Plan

OPERATORS = sorted(CASES)


def _build(operator: str, machine: Machine, fused: bool = True, **changes: object) -> Operation:
    return operations.build(operator, {**CASES[operator], **changes}, machine, fused=fused)


# GEMV + AllReduce is a scale-up operator.
PAIRS = [
    (operator, name)
    for operator in OPERATORS
    for name in ("h200-x2", "mi210-x4", "mi210-2node")
    if (operator, name) != ("gemv_all_reduce", "mi210-2node")
]


def _plan(dests: list[int], read: int, sent: int, flops: int = 0, grid: int = 1) -> Plan:
    n = len(dests)
    number = np.arange(n, dtype=np.int32)
    same = np.ones(n, dtype=np.int64)
    return Plan(
        grid,
        (number % grid).astype(np.int32),
        number,
        np.array(dests, dtype=np.int32),
        number,
        read * same,
        sent * same,
        flops * same,
    )


def _bare(name: str = "h200-x2", **changes: object) -> Machine:
    """A machine whose memory is one work-group's and which has no overheads unless asked for."""
    zero = {"launch": 0.0, "flag": 0.0, "store_rate": 1e18}
    base = replace(machine_of(name), **{**zero, **changes})
    return base.with_kernel("embedding_all_to_all", bytes_in_flight=1e18, memory_efficiency=1.0, wg_overhead=0.0)


def test_one_work_group_streams_at_its_own_rate() -> None:
    machine = machine_of("h200-x2")
    n, read = 10, 1 << 20
    alone = Operation("embedding_all_to_all", (_plan([0] * n, read, 0),) * 2, "scatter", "all_to_all", 0)
    each = (
        read / machine.wg_memory_rate("embedding_all_to_all", alone.waves, alone.in_flight)
        + machine.kernels["embedding_all_to_all"].wg_overhead
    )
    assert replay(machine, alone, "compute").time == pytest.approx(machine.launch + n * each)


def test_all_work_groups_stream_at_the_memorys_rate() -> None:
    machine = _bare()
    n, read = 64, 1 << 20
    op = Operation("embedding_all_to_all", (_plan([0] * n, read, 0, grid=16),) * 2, "scatter", "all_to_all", 0)
    assert replay(machine, op, "compute").time == pytest.approx(n * read / machine.memory)


def test_math_bound_work_takes_waves() -> None:
    machine = replace(machine_of("h200-x2"), launch=0.0).with_kernel("gemm_all_to_all", wg_overhead=0.0)
    flops, grid = 10**9, 132
    per_cu = machine.math_rate("gemm_all_to_all") / machine.compute_units

    def time(n: int) -> float:
        op = Operation("gemm_all_to_all", (_plan([0] * n, 0, 0, flops, grid),) * 2, "scatter", "all_to_all", 0)
        return replay(machine, op, "compute").time

    assert time(132) == pytest.approx(flops / per_cu)
    assert time(133) == pytest.approx(2 * flops / per_cu)  # the tail wave costs a whole tile


def test_one_remote_tile_is_read_send_flag() -> None:
    machine = _bare(flag=2 * US)
    read, sent = 1 << 20, 1 << 18
    plans = (_plan([1], read, sent), _plan([0], read, sent))
    op = Operation("embedding_all_to_all", plans, "scatter", "all_to_all", 0)
    outcome = replay(machine, op, "peer")
    assert outcome.time == pytest.approx(read / machine.memory + sent / machine.link + 2 * US)
    assert outcome.skew == 0


def test_rdma_sends_a_slice_when_its_last_work_group_is_done() -> None:
    machine = _bare("mi210-2node", flag=2 * US, put_cost=1 * US)
    read, sent, n = 1 << 20, 1 << 16, 4
    whole = [replace(_plan([1 - r] * n, read, sent), slice=np.zeros(n, dtype=np.int32)) for r in range(2)]
    op = Operation("embedding_all_to_all", tuple(whole), "scatter", "all_to_all", 0)
    outcome = replay(machine, op, "rdma")
    # Local stores into the slice's buffer share memory with the reads that follow them.
    computed = (n * read + (n - 1) * sent) / machine.memory
    assert outcome.time == pytest.approx(computed + 1 * US + n * sent / machine.link + 2 * US, rel=2e-3)
    assert outcome.fabric.messages == 2


@pytest.mark.parametrize(("operator", "name"), PAIRS)
def test_everything_sent_is_delivered_and_counted(operator: str, name: str) -> None:
    machine = machine_of(name)
    op = _build(operator, machine)
    outcome = replay(machine, op, machine.transport)
    assert outcome.fabric.delivered == outcome.fabric.sent
    assert outcome.fabric.sent == pytest.approx(sum(op.bytes_sent(r) for r in range(op.world_size)))
    assert min(outcome.memory_served) >= op.bytes_read(0) * 0.999
    assert min(outcome.ends) > 0


@pytest.mark.parametrize(("operator", "name"), PAIRS)
def test_fused_is_never_under_compute_nor_link_nor_limit(operator: str, name: str) -> None:
    machine = machine_of(name)
    op = _build(operator, machine)
    fused = replay(machine, op, machine.transport).time
    assert fused >= replay(machine, op, "compute").time * (1 - 1e-9)
    assert fused >= op.bytes_sent() / machine.capacity
    for strategy in ("bulk", "fused", "decomposed", "ace"):
        assert strategies.time(strategy, machine, op) >= strategies.limit(machine, op) * (1 - 1e-9)


@pytest.mark.parametrize(("operator", "name"), PAIRS)
@pytest.mark.parametrize("strategy", ["compute", "bulk", "fused", "decomposed", "t3", "ace"])
def test_better_machines_are_not_slower(operator: str, name: str, strategy: str) -> None:
    machine = machine_of(name)
    op = _build(operator, machine)
    nominal = strategies.time(strategy, machine, op)
    # Processor sharing is not monotone to the last digit when the order of events changes: half a percent.
    for better in ({"link": 1.5}, {"memory": 1.5}, {"launch": 0.5}):
        assert strategies.time(strategy, machine.scaled(**better), op) <= nominal * 1.005
    worse = machine.scaled(link=0.5, memory=0.5, launch=2.0)
    assert strategies.time(strategy, worse, op) > nominal


@pytest.mark.parametrize("algorithm", ["one_shot", "two_phase"])
def test_gemv_pays_one_or_two_flags_over_its_compute_kernel(algorithm: str) -> None:
    machine = replace(machine_of("h200-x2"), sync_cost=0.0)
    op = _build("gemv_all_reduce", machine, algorithm=algorithm)
    extra = replay(machine, op, "peer").time - replay(machine, op, "compute").time
    # two_phase may hide its first flag behind the tiles that a rank owns itself.
    most = {"one_shot": 1, "two_phase": 2}[algorithm]
    assert machine.flag <= extra <= most * machine.flag + 2 * US


def test_a_late_rank_delays_its_peers_by_what_they_need_of_it() -> None:
    machine = machine_of("h200-x2")
    op = _build("embedding_all_to_all", machine)
    on_time = replay(machine, op, "peer")
    late = replay(machine, op, "peer", [0.0, 100 * US])
    # Its own run may be shorter than in step (its peer no longer shares the link), but not shorter than its reads alone.
    assert late.ends[1] >= 100 * US + 0.9 * on_time.ends[1]
    assert late.ends[0] > on_time.ends[0]


def test_remote_first_has_less_skew_between_nodes_than_oblivious_order() -> None:
    machine = machine_of("mi210-2node")
    skews = {
        order: replay(
            machine,
            operations.build("embedding_all_to_all", CASES["embedding_all_to_all"], machine, True, order),
            "rdma",
        ).skew
        for order in ("remote_first", "oblivious")
    }
    assert skews["remote_first"] < 0.02 < skews["oblivious"]


def test_occupancy_matters_only_below_what_memory_needs() -> None:
    nominal = machine_of("mi210-x4")

    def time(part: float) -> float:
        machine = operations.with_occupancy(nominal, "embedding_all_to_all", part, fused=False)
        return replay(machine, _build("embedding_all_to_all", machine, fused=False), "compute").time

    assert time(0.125) > 1.8 * time(0.25) > 1.5 * time(1.0)
    assert time(0.875) == pytest.approx(time(1.0), rel=0.1)


def test_bulk_is_its_parts() -> None:
    machine = machine_of("mi210-x4")
    op = _build("embedding_all_to_all", machine, fused=False)
    parts = replay(machine, op, "compute").time + machine.collective("all_to_all", op.collective_bytes)
    permuted = machine.launch + 2 * op.collective_bytes / machine.memory
    assert strategies.time("bulk", machine, op) == pytest.approx(parts + permuted)


def test_hardware_strategies_order_as_their_ideas_say() -> None:
    machine = machine_of("mi210-x4")
    for operator in OPERATORS:
        op = _build(operator, machine, fused=False)
        times = {s: strategies.time(s, machine, op) for s in ("compute", "bulk", "t3", "t3_mca", "ace")}
        assert times["compute"] <= times["t3_mca"] <= times["t3"] * (1 + 1e-9)
        assert times["compute"] < times["ace"] < times["bulk"]
    op = _build("gemv_all_reduce", machine, fused=False)
    assert strategies.time("in_switch", machine, op) < strategies.time("bulk", machine, op)
    with pytest.raises(ModelError, match=offload.IN_SWITCH_NEEDS):
        strategies.time("in_switch", machine, _build("gemm_all_to_all", machine))
    with pytest.raises(ModelError, match="strategy is 'magic'; allowed: compute, bulk"):
        strategies.time("magic", machine, op)


def test_a_slice_with_two_destinations_is_refused() -> None:
    machine = machine_of("mi210-2node")
    plan = replace(_plan([1, 1], 1, 1), slice=np.zeros(2, dtype=np.int32))
    other = replace(_plan([0, 2], 1, 1), slice=np.zeros(2, dtype=np.int32))
    op = Operation("embedding_all_to_all", (plan, other, plan), "scatter", "all_to_all", 0)
    with pytest.raises(ModelError, match="slice 0 of rank 1 has destinations 0 and 2; allowed: one"):
        replay(machine, op, "rdma")

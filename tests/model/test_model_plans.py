"""Classes of work-groups are the plan, regrouped; the what-if order is a permutation of it."""

from collections import Counter

import pytest
from model_machines import CASES, machine_of

from experiments.model import operations, plans
from experiments.model.errors import ModelError
from experiments.model.plans import Operation, classes

OPERATORS = sorted(CASES)


def _operation(operator: str, order: str = "remote_first") -> Operation:
    return operations.build(operator, CASES[operator], machine_of("mi210-x4"), fused=True, order=order)


def _lists(plan: plans.Plan) -> dict[int, list[tuple]]:
    """Per physical work-group its logical ones in order."""
    found: dict[int, list[tuple]] = {}
    rows = zip(
        plan.wg.tolist(),
        plan.dest.tolist(),
        plan.bytes_read.tolist(),
        plan.bytes_sent.tolist(),
        plan.flops.tolist(),
        strict=True,
    )
    for wg, *cost in rows:
        found.setdefault(wg, []).append(tuple(cost))
    return found


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("by_slice", [False, True])
def test_classes_hold_every_work_group_with_its_steps_in_order(operator: str, by_slice: bool) -> None:
    for plan in _operation(operator).plans:
        wanted = _lists(plan)
        seen = {}
        for group in classes(plan, by_slice):
            for member in group.members:
                assert member not in seen
                seen[member] = [(s.dest, s.bytes_read, s.bytes_sent, s.flops) for s in group.steps]
        assert seen == wanted


@pytest.mark.parametrize("operator", OPERATORS)
def test_slices_are_counted_completely(operator: str) -> None:
    plan = _operation(operator).plans[1]
    counted: Counter[int] = Counter()
    for group in classes(plan, by_slice=True):
        for step in group.steps:
            assert sum(n for _, n in step.slices) == len(group.members)
            counted.update(dict(step.slices))
    assert counted == Counter(plan.slice.tolist())


def test_equal_work_groups_share_a_class() -> None:
    assert len(classes(_operation("embedding_all_to_all").plans[0])) < 8


@pytest.mark.parametrize("operator", OPERATORS)
def test_interleaved_work_groups_start_with_every_remote_rank_and_end_with_their_own(operator: str) -> None:
    case = {**CASES[operator], **({"global_batch": 4096} if operator == "embedding_all_to_all" else {})}
    machine = machine_of("mi210-x4")
    first, mixed = (
        operations.build(operator, case, machine, fused=True, order=order) for order in ("remote_first", "interleaved")
    )
    for rank, (plan, other) in enumerate(zip(first.plans, mixed.plans, strict=True)):
        before, after = _lists(plan), _lists(other)
        starts = Counter()
        for wg, steps in before.items():
            assert Counter(after[wg]) == Counter(steps)
            local = [step[0] == rank for step in after[wg]]
            assert local == sorted(local)
            starts[after[wg][0][0]] += not local[0]
        remote = [starts[dest] for dest in range(4) if dest != rank]
        assert min(remote) > 0.2 * sum(remote)


def test_remote_first_starts_remote_and_oblivious_at_rank_zero() -> None:
    case = {**CASES["embedding_all_to_all"], "global_batch": 4096}  # several steps a work-group
    machine = machine_of("mi210-x4")
    remote, oblivious = (
        operations.build("embedding_all_to_all", case, machine, fused=True, order=o)
        for o in ("remote_first", "oblivious")
    )
    assert [int(plan.dest[0]) for plan in remote.plans] == [1, 2, 3, 0]
    assert [int(plan.dest[0]) for plan in oblivious.plans] == [0, 0, 0, 0]


def test_traffic_of_an_operation() -> None:
    scatter = _operation("embedding_all_to_all")
    assert scatter.bytes_sent() == pytest.approx(3 / 4 * scatter.collective_bytes)
    one_shot = _operation("gemv_all_reduce")
    assert one_shot.protocol == "one_shot"
    assert one_shot.bytes_sent() == 3 * 8192 * 4
    case = {**CASES["gemv_all_reduce"], "algorithm": "two_phase"}
    two_phase = operations.build("gemv_all_reduce", case, machine_of("mi210-x4"), fused=True)
    assert two_phase.bytes_sent() == 3 / 4 * 8192 * 4 + 3 * 8192 / 4 * 2
    gemm = _operation("gemm_all_to_all")
    assert gemm.flops() == 2 * 2048 * 4096 * 1024
    assert gemm.bytes_read() == pytest.approx((2048 * 1024 + 4 * 2 * 4096 * 1024) * 2)


def test_mistakes_are_one_line() -> None:
    machine = machine_of("h200-x2")
    with pytest.raises(ModelError, match="operator is 'conv'; allowed: gemv_all_reduce"):
        operations.build("conv", {}, machine, fused=True)
    with pytest.raises(ModelError, match="case v of gemv_all_reduce: column 'k' is missing"):
        operations.build("gemv_all_reduce", {"case": "v", "m": 4, "dtype": "float16"}, machine, fused=True)

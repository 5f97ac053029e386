"""The operational model against the axioms of PTX, on the litmus table and on random programs."""

import random

import pytest
from axioms import events_of, executions

from emulator.memory_model.litmus import Litmus, matches, outcomes
from emulator.memory_model.litmus_table import TABLE

PLAIN = [t for t in TABLE if "B" not in t.threads]  # block barriers are not in the oracle


@pytest.mark.parametrize(
    "test", [t for t in PLAIN if t.threads.count(";") + t.threads.count("\n") < 7], ids=lambda t: t.name
)
def test_the_table_says_what_the_axioms_say(test: Litmus) -> None:
    allowed = {outcome for outcome, _ in executions(events_of(test.threads))}
    for condition in (*test.allowed, *test.not_produced):
        assert any(matches(o, condition) for o in allowed), condition
    for condition in test.forbidden:
        assert not any(matches(o, condition) for o in allowed), condition


def program(rng: random.Random, kinds: str = "WWWRRRAF") -> str:
    """Two or three threads, up to three operations each, on two locations, with any orders, scopes and places."""
    registers = iter("abcdefghijk")
    values = iter(range(1, 20))
    threads = []
    for _ in range(rng.choice((2, 2, 3))):
        ops = []
        for _ in range(rng.choice((1, 2, 2, 3)) if len(threads) < 2 else rng.choice((1, 2))):
            place, scope = rng.choice("xy"), rng.choice(("cta", "gpu", "sys", "sys"))
            kind = rng.choice(kinds)
            if kind == "W":
                order = rng.choice(("", ".rlx", ".rel"))
                ops.append(f"W{order}{'.' + scope if order else ''} {place} {next(values)}")
            elif kind == "R":
                order = rng.choice(("", ".rlx", ".acq"))
                ops.append(f"R{order}{'.' + scope if order else ''} {place} {next(registers)}")
            elif kind == "A":
                ops.append(f"A.{rng.choice(('rlx', 'acq', 'rel', 'acq_rel'))}.{scope} {place} 100 {next(registers)}")
            else:
                ops.append(f"F.{rng.choice(('acq_rel', 'sc'))}.{scope}")
        threads.append(f"{rng.choice(('0.0', '0.0', '0.1', '1.0'))}: " + "; ".join(ops))
    return "\n".join(threads)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_do_nothing_that_the_axioms_forbid(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        threads = program(rng)
        found = set(outcomes(Litmus("random", threads)))
        allowed = {outcome for outcome, _ in executions(events_of(threads))}
        assert found <= allowed, f"{threads}\nforbidden: {sorted(found - allowed)}"


@pytest.mark.parametrize("seed", range(4))
def test_without_atomics_they_do_all_that_the_axioms_allow(seed: int) -> None:
    """All but load buffering: outcomes that need a cycle of program order and reads-from."""
    rng = random.Random(200 + seed)
    for _ in range(12):
        threads = program(rng, "WWRRF")
        found = set(outcomes(Litmus("random", threads)))
        producible = {outcome for outcome, beyond in executions(events_of(threads)) if not beyond}
        assert found == producible, (
            f"{threads}\nmissing: {sorted(producible - found)}; forbidden: {sorted(found - producible)}"
        )

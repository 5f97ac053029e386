"""Litmus tests: tiny thread programs run through the memory model in every possible way.

Syntax, one thread a line: `rank.block: op; op; ...` with
    W[.order.scope] loc value          store (plain without an order; order: rlx, rel)
    R[.order.scope] loc reg            load  (order: rlx, acq)
    A.order.scope loc value reg        atomic add, old value into reg
    X.order.scope loc value reg        atomic exchange
    F.order.scope                      fence (order: acq_rel, sc)
    B                                  block barrier with the other threads of the block that have one
    reg=value? op                      the op, only if the register has that value
An outcome is `reg=value ... [loc]=value ...`, where [loc] is the final value.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import sync
from .buffers import Buffer, Where
from .memory import Memory
from .order import Scope, Sem, Thread

SEMS = {"rlx": Sem.RELAXED, "acq": Sem.ACQUIRE, "rel": Sem.RELEASE, "acq_rel": Sem.ACQ_REL}
SCOPES = {"cta": Scope.CTA, "gpu": Scope.GPU, "sys": Scope.SYS}
I32 = np.dtype(np.int32)


@dataclass(frozen=True)
class Litmus:
    """A test: `threads` as above, and outcomes that PTX allows (and we produce), forbids, or allows and we do not produce."""

    name: str
    threads: str
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    not_produced: tuple[str, ...] = ()


class Enumerate:
    """Depth-first walk over all sequences of choices: `runs()` yields itself once per sequence."""

    def __init__(self, limit: int = 2_000_000):
        self._path: list[list[int]] = []  # [taken, of how many]
        self._at = 0
        self._limit = limit

    def choose(self, n: int) -> int:
        if n <= 1:
            return 0
        if self._at == len(self._path):
            self._path.append([0, n])
        self._at += 1
        return self._path[self._at - 1][0]

    def runs(self) -> Iterator["Enumerate"]:
        for _ in range(self._limit):
            self._at = 0
            yield self
            while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
                self._path.pop()
            if not self._path:
                return
            self._path[-1][0] += 1
        raise RuntimeError(f"more than {self._limit} executions")

    # the Chooser of the memory model
    def stale(self, t: Thread, w: Where, n: int) -> int:
        return self.choose(n)

    def tile(self, t: Thread, w: Where) -> float:
        return float(self.choose(2))

    def place(self, t: Thread, w: Where, n: int) -> int:
        return self.choose(n + 1)


def parse(threads: str) -> list[tuple[int, str, list[list[str]]]]:
    """[(rank, block, [[op, argument, ...], ...]), ...]"""
    parsed = []
    for line in threads.strip().splitlines():
        place, _, body = line.strip().partition(":")
        rank = place.partition(".")[0]
        parsed.append((int(rank), place, [_guarded(op) for op in body.split(";")]))
    return parsed


def _guarded(op: str) -> list[str]:
    """[op, arguments ..., guard or ""]."""
    guard, mark, rest = op.rpartition("?")
    return [*rest.split(), guard.strip() if mark else ""]


def outcomes(test: Litmus, mode: str = "weak", races: list | None = None) -> dict[str, int]:
    """Every outcome of the test that the model produces, with the number of executions that give it."""
    program = parse(test.threads)
    places = sorted({op[1] for _, _, ops in program for op in ops if op[0][0] in "WRAX"})
    found: dict[str, int] = {}
    for chooser in Enumerate().runs():
        memory = Memory(chooser, mode, races.append if races is not None else None, threads=len(program))
        locations = {p: Buffer(p, 0, np.zeros(4, np.uint8), 4).where(0, 4) for p in places}
        threads = [memory.thread(rank, block, "lead", f"T{i}") for i, (rank, block, _) in enumerate(program)]
        registers: dict[str, int] = {}
        at = [0] * len(program)
        while True:
            ready = [i for i, (_, _, ops) in enumerate(program) if at[i] < len(ops) and not _waits(program, at, i)]
            if not ready:
                break
            i = ready[chooser.choose(len(ready))]
            op = program[i][2][at[i]]
            if op[0] == "B":
                group = [
                    j
                    for j, (_, block, _) in enumerate(program)
                    if block == program[i][1] and _at_barrier(program, at, j)
                ]
                sync.together(memory, [threads[j] for j in group], Scope.CTA)
                for j in group:
                    at[j] += 1
                continue
            at[i] += 1
            register, _, value = op[-1].partition("=")
            if not register or registers.get(register) == int(value):
                _perform(memory, threads[i], op[:-1], locations, registers)
        final = {f"[{p}]": int(w.buf.typed(I32)[0]) for p, w in locations.items()}
        key = " ".join(f"{k}={v}" for k, v in sorted((registers | final).items()))
        found[key] = found.get(key, 0) + 1
    return found


def _at_barrier(program, at: list[int], i: int) -> bool:
    ops = program[i][2]
    return at[i] < len(ops) and ops[at[i]][0] == "B"


def _waits(program, at: list[int], i: int) -> bool:
    """At a barrier that another thread of the block has still to reach."""
    mates = [
        j
        for j, (_, block, ops) in enumerate(program)
        if block == program[i][1] and any(op[0] == "B" for op in ops[at[j] :])
    ]
    return _at_barrier(program, at, i) and not all(_at_barrier(program, at, j) for j in mates)


def _perform(memory: Memory, t: Thread, op: list[str], locations: dict[str, Where], registers: dict[str, int]) -> None:
    kind, *orders = op[0].split(".")
    if kind == "F":
        sync.fence(memory, t, SCOPES[orders[1]], sc=orders[0] == "sc")
        return
    sem, scope = (SEMS[orders[0]], SCOPES[orders[1]]) if orders else (Sem.PLAIN, Scope.SYS)
    w, site = locations[op[1]], " ".join(op)
    if kind == "W":
        memory.store(t, w, np.array([int(op[2])], I32), sem, scope, site, "store")
    elif kind == "R":
        registers[op[2]] = int(memory.load(t, w, I32, sem, scope, site, "load")[0])
    else:
        change = (lambda old: old + I32.type(int(op[2]))) if kind == "A" else (lambda old: np.array([int(op[2])], I32))
        registers[op[3]] = int(memory.rmw(t, w, I32, change, sem, scope, site, "atomic")[0])


def matches(outcome: str, condition: str) -> bool:
    """Whether a full outcome satisfies a partial one."""
    have = dict(part.split("=") for part in outcome.split())
    return all(have[k] == v for k, v in (part.split("=") for part in condition.split()))


def verdict(test: Litmus, mode: str = "weak") -> dict[str, bool]:
    """For each listed outcome of the test: does it occur?"""
    found = outcomes(test, mode)
    return {c: any(matches(o, c) for o in found) for c in (*test.allowed, *test.forbidden, *test.not_produced)}

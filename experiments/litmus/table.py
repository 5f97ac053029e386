"""The tests: one text that the memory model runs (`emulator/memory_model/litmus.py`) and one kernel (`device.py`) that does the same.

A line of the text is `role: operations`; lines of one role are threads of one work-group. The result that tells is written beside it; whether
the memory model allows it is asked, not written.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

SHORT = {"relaxed": "rlx", "acquire": "acq", "release": "rel"}
PLACEMENTS = {"one GPU": 1, "two GPUs": 2}


@dataclass(frozen=True)
class Case:
    """One test at one placement.

    Attributes:
        name: of the test, with its orders and scopes.
        placement: of `PLACEMENTS`; on two GPUs role r is on GPU r % 2.
        shape, parameters: the kernel's.
        roles, registers: work-groups of a group; names of what they read.
        threads: the text, without ranks.
        telling: the result that a missing order would show, "a=1 b=0".
    """

    name: str
    placement: str
    shape: str
    parameters: tuple
    roles: int
    registers: tuple[str, ...]
    threads: str
    telling: str

    @property
    def world_size(self) -> int:
        return PLACEMENTS[self.placement]

    def rank(self, role: int) -> int:
        return role % self.world_size

    @functools.cached_property
    def possible(self) -> frozenset[str]:
        """Every result that the memory model produces, as "a=1 b=0"."""
        from emulator.memory_model.litmus import Litmus, outcomes

        placed = []
        for line in self.threads.splitlines():
            role, _, operations = line.partition(":")
            placed.append(f"{self.rank(int(role))}.{role}:{operations}")
        found = outcomes(Litmus(self.name, "\n".join(placed)))
        return frozenset(self._result(dict(part.split("=") for part in outcome.split())) for outcome in found)

    def _result(self, values: dict[str, str]) -> str:
        return " ".join(f"{name}={values[name]}" for name in self.registers)


def _message_passing(placement: str, release: str, to: str, acquire: str, by: str) -> Case:
    text = f"0: W x 1; X.{SHORT[release]}.{to} y 1 p\n1: R.{SHORT[acquire]}.{by} y a; R x b"
    name = f"message passing, {release}.{to}, {acquire}.{by}"
    return Case(name, placement, "message passing", (release, to, acquire, by), 2, ("a", "b"), text, "a=1 b=0")


def _tile_and_signal(placement: str, barrier: bool) -> Case:
    middle = "; B" if barrier else ""
    text = f"0: W x 1{middle}\n0: {'B; ' if barrier else ''}X.rel.sys y 1 p\n1: R.acq.sys y a; B\n1: B; R x b"
    name = f"tile and signal{'' if barrier else ', no barrier'}"
    return Case(name, placement, "tile and signal", (barrier, 0, 0, 0), 2, ("a", "b"), text, "a=1 b=0")


def _store_buffering(placement: str, scope: str, fence: bool) -> Case:
    middle = f"F.sc.{scope}; " if fence else ""
    text = f"0: X.rlx.{scope} x 1 p; {middle}R.rlx.{scope} y a\n1: X.rlx.{scope} y 1 q; {middle}R.rlx.{scope} x b"
    name = f"store buffering, relaxed.{scope}{', fence.sc' if fence else ''}"
    return Case(name, placement, "store buffering", (scope, fence, 0, 0), 2, ("a", "b"), text, "a=0 b=0")


def _independent_reads(placement: str, scope: str, acquire: str, fence: bool) -> Case:
    read, middle = f"R.{SHORT[acquire]}.{scope}", f"F.sc.{scope}; " if fence else ""
    text = f"0: X.rlx.{scope} x 1 p\n1: X.rlx.{scope} y 1 q\n2: {read} x a; {middle}{read} y b\n3: {read} y c; {middle}{read} x d"
    name = f"independent reads, {acquire}.{scope}{', fence.sc' if fence else ''}"
    registers, telling = ("a", "b", "c", "d"), "a=1 b=0 c=1 d=0"
    return Case(name, placement, "independent reads", (scope, acquire, fence, 0), 4, registers, text, telling)


def _release_chain(placement: str, middle: str, by: str, scope: str) -> Case:
    text = f"0: W x 1; A.rel.{scope} y 1 p\n1: A.{SHORT[middle]}.{by} y 1 q\n2: R.acq.{scope} y a; R x b"
    name = f"release chain, release.{scope}, {middle}.{by}, acquire.{scope}"
    return Case(name, placement, "release chain", (middle, by, scope, 0), 3, ("a", "b"), text, "a=2 b=0")


def _cumulativity(placement: str, release: str, scope: str) -> Case:
    text = (
        f"0: X.rlx.{scope} x 1 p\n1: R.rlx.{scope} x a; X.{SHORT[release]}.{scope} y 1 q\n"
        f"2: R.acq.{scope} y b; R.rlx.{scope} x c"
    )
    name = f"cumulativity, {release}.{scope}"
    registers, telling = ("a", "b", "c"), "a=1 b=1 c=0"
    return Case(name, placement, "cumulativity", (release, scope, 0, 0), 3, registers, text, telling)


def _all() -> Iterator[Case]:
    # Each placement with the scope that reaches its work-groups, and with the next smaller one.
    for placement, scope, small in (("one GPU", "gpu", "cta"), ("two GPUs", "sys", "gpu")):
        yield _message_passing(placement, "release", scope, "acquire", scope)
        yield _message_passing(placement, "release", small, "acquire", scope)
        yield _message_passing(placement, "release", scope, "acquire", small)
        yield _message_passing(placement, "relaxed", scope, "acquire", scope)
        yield _message_passing(placement, "release", scope, "relaxed", scope)
        yield _message_passing(placement, "relaxed", scope, "relaxed", scope)
        yield _tile_and_signal(placement, True)
        yield _tile_and_signal(placement, False)
        yield _store_buffering(placement, scope, False)
        yield _store_buffering(placement, scope, True)
        yield _independent_reads(placement, scope, "acquire", False)
        yield _independent_reads(placement, scope, "relaxed", True)
        yield _release_chain(placement, "relaxed", scope, scope)
        yield _release_chain(placement, "relaxed", small, scope)
        yield _cumulativity(placement, "release", scope)
        yield _cumulativity(placement, "relaxed", scope)


CASES = tuple(_all())

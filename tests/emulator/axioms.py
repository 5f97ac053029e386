"""The PTX memory model's axioms, checked by brute force on small programs: an independent oracle for the operational model.

After PTX ISA 8.5, "Memory Consistency Model", and Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX Memory
Consistency Model", ASPLOS 2019. Coherence is taken as total over each location, which forbids no less than PTX does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

from emulator.memory_model.litmus import SCOPES, SEMS, parse
from emulator.memory_model.order import Scope, Sem

Edges = set[tuple[int, int]]


@dataclass(frozen=True)
class Event:
    """One operation. `kind` is W, R, A (add), X (exchange), F (fence) or I (a location's first value)."""

    id: int
    thread: int
    rank: int
    block: str
    kind: str
    sem: Sem
    scope: Scope
    sc: bool = False
    place: str = ""
    value: int = 0
    register: str = ""

    @property
    def writes(self) -> bool:
        return self.kind in "WAXI"

    @property
    def reads(self) -> bool:
        return self.kind in "RAX"

    @property
    def rmw(self) -> bool:
        return self.kind in "AX"


def events_of(threads: str) -> list[Event]:
    """All events of a litmus program, first values first."""
    program = parse(threads)
    places = sorted({op[1] for _, _, ops in program for op in ops if op[0][0] in "WRAX"})
    events = [Event(i, -1, -1, "", "I", Sem.PLAIN, Scope.SYS, place=p) for i, p in enumerate(places)]
    for thread, (rank, block, ops) in enumerate(program):
        for op in ops:
            kind, *orders = op[0].split(".")
            common = {"id": len(events), "thread": thread, "rank": rank, "block": block, "kind": kind}
            if kind == "F":
                events.append(Event(**common, sem=Sem.ACQ_REL, scope=SCOPES[orders[1]], sc=orders[0] == "sc"))
                continue
            sem, scope = (SEMS[orders[0]], SCOPES[orders[1]]) if orders else (Sem.PLAIN, Scope.SYS)
            value = int(op[2]) if kind != "R" else 0
            register = {"R": 2, "A": 3, "X": 3}.get(kind)
            events.append(
                Event(
                    **common, sem=sem, scope=scope, place=op[1], value=value, register=op[register] if register else ""
                )
            )
    return events


def morally_strong(a: Event, b: Event) -> bool:
    """Related in program order, or both strong with scopes that include each other's thread."""
    if a.thread == b.thread:
        return True
    if not (a.sem and b.sem):
        return False
    narrow = min(a.scope, b.scope)
    return narrow is Scope.SYS or (a.rank == b.rank and (narrow is Scope.GPU or a.block == b.block))


def closure(edges: Edges) -> Edges:
    """Transitive closure."""
    after: dict[int, set[int]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)
    found: Edges = set()
    for start, direct in after.items():
        todo, seen = list(direct), set()
        while todo:
            x = todo.pop()
            if x not in seen:
                seen.add(x)
                todo += after.get(x, ())
        found |= {(start, x) for x in seen}
    return found


def acyclic(edges: Edges) -> bool:
    return all(a != b for a, b in closure(edges))


def _values(events: list[Event], rf: dict[int, int]) -> dict[int, int] | None:
    """Value written by each write, given whom each read reads; None if values would come out of thin air."""
    known: dict[int, int] = {}

    def written(i: int, path: tuple[int, ...]) -> int | None:
        e = events[i]
        if e.kind != "A":
            return e.value
        if i in path:
            return None
        if i not in known:
            old = written(rf[i], (*path, i))
            if old is None:
                return None
            known[i] = old + e.value
        return known[i]

    values = {e.id: written(e.id, ()) for e in events if e.writes}
    return None if None in values.values() else values


def executions(events: list[Event]) -> Iterator[tuple[str, bool]]:
    """(outcome, whether it needs what the operational model does not produce) of every execution that the axioms allow."""
    reads = [e for e in events if e.reads]
    at = {p: [e for e in events if e.writes and e.place == p] for p in {e.place for e in events if e.place}}
    fences = [e.id for e in events if e.sc]
    po = {(a.id, b.id) for a in events for b in events if a.thread == b.thread >= 0 and a.id < b.id}
    sources = [[w.id for w in at[r.place] if w.id != r.id] for r in reads]
    orders = [[(ws[0].id, *order) for order in permutations(w.id for w in ws[1:])] for ws in at.values()]
    for choice in product(*sources):
        rf = {r.id: w for r, w in zip(reads, choice, strict=True)}
        values = _values(events, rf)
        if values is None:
            continue
        for co_orders in product(*orders):
            co = {(a, b) for order in co_orders for i, a in enumerate(order) for b in order[i + 1 :]}
            if any(_allowed(events, po, rf, co, sc) for sc in permutations(fences)):
                final = {events[order[-1]].place: values[order[-1]] for order in co_orders}
                shown = {e.register: values[rf[e.id]] for e in reads} | {f"[{p}]": v for p, v in final.items()}
                produced = acyclic(po | {(w, r) for r, w in rf.items()}) and _atomic(events, rf, co)
                yield " ".join(f"{k}={v}" for k, v in sorted(shown.items())), not produced


def _atomic(events: list[Event], rf: dict[int, int], co: Edges) -> bool:
    """Every read-modify-write comes after what it read, with no write at all between, morally strong or not."""
    return all(
        (rf[e.id], e.id) in co and not any((rf[e.id], w.id) in co and (w.id, e.id) in co for w in events if w.writes)
        for e in events
        if e.rmw
    )


def _allowed(events: list[Event], po: Edges, rf: dict[int, int], co: Edges, sc: tuple[int, ...]) -> bool:
    """The axioms, in the order of the PTX manual."""
    ms = {(a.id, b.id) for a in events for b in events if a.thread >= 0 and b.thread >= 0 and morally_strong(a, b)}
    by_rf = {(w, r) for r, w in rf.items()}
    fr = {(r, w2) for r, w in rf.items() for w1, w2 in co if w1 == w and w2 != r}
    observed = _through_rmw(events, {(w, r) for w, r in by_rf if (w, r) in ms})
    sync = {(f1, f2) for i, f1 in enumerate(sc) for f2 in sc[i + 1 :] if (f1, f2) in ms}
    for first, write in _releases(events, po):
        for read, last in _acquires(events, po):
            if (write, read) in observed and (first, last) in ms and first != last:
                sync.add((first, last))
    base = closure(po | sync)
    cause = base | {(x, y) for x, z in observed for z2, y in base if z == z2}
    first_values = {(e.id, x.id) for e in events for x in events if e.kind == "I" and x.kind != "I"}
    cause |= first_values
    writes = {e.id for e in events if e.writes}
    if any(a == b for a, b in cause):
        return False
    if any((a, b) in cause and (b, a) in co for a in writes for b in writes):
        return False  # coherence
    if any((sc[j], sc[i]) in cause and (sc[i], sc[j]) in ms for i in range(len(sc)) for j in range(i + 1, len(sc))):
        return False  # fence-sc
    for e in events:
        if e.rmw and any((rf[e.id], w) in co and (w, e.id) in co and (w, e.id) in ms for w in writes):
            return False  # atomicity
    communication = {(a, b) for a, b in by_rf | co | fr if (a, b) in ms}
    same = {(a, b) for a, b in po if events[a].place and events[a].place == events[b].place}
    if not acyclic(communication | same):
        return False  # sequential consistency per location
    return not any((b, a) in cause for a, b in by_rf | fr)  # causality


def _through_rmw(events: list[Event], direct: Edges) -> Edges:
    """Observation order: a write and a read of it, or of a read-modify-write that observed it."""
    found = set(direct)
    while True:
        more = {(w, r) for w, z in found if events[z].rmw for z2, r in direct if z == z2} - found
        if not more:
            return found
        found |= more


def _releases(events: list[Event], po: Edges) -> Iterator[tuple[int, int]]:
    """(first operation, write) of each release pattern."""
    for e in events:
        if e.writes and e.sem.releases:
            yield e.id, e.id
        for later in events:
            follows = (e.id, later.id) in po and later.writes and later.sem
            if follows and (e.kind == "F" or (e.writes and e.sem.releases and e.place == later.place)):
                yield e.id, later.id


def _acquires(events: list[Event], po: Edges) -> Iterator[tuple[int, int]]:
    """(read, last operation) of each acquire pattern."""
    for e in events:
        if not e.reads or not e.sem:
            continue
        if e.sem.acquires:
            yield e.id, e.id
        for later in events:
            follows = (e.id, later.id) in po
            if follows and (later.kind == "F" or (later.reads and later.sem.acquires and later.place == e.place)):
                yield e.id, later.id

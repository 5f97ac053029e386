"""One kernel on every GPU of a node, replayed work-group by work-group: the heart of the timing model.

A work-group's step: its memory reads and its math proceed together, each under processor sharing; then a fixed overhead;
then its stores. Peer stores block the work-group for bytes / store_rate, and it keeps one tile under way on the link (it waits
for the tile before). A signal follows the last store to a destination and is released when that store has drained. Waits
are between equal work-group numbers, as in the kernels. With `rdma`, whoever completes a slice posts its put and goes on.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import simpy

from .errors import ModelError
from .fabric import Fabric
from .machine import Machine
from .plans import Operation, Step, WorkClass
from .sharing import SharedRate

Process = Generator[simpy.Event, object, None]
Mode = str  # "compute": all results stay local, nobody signals; "peer", "rdma": fused


@dataclass
class Outcome:
    """When things happened, seconds from the (common) launch; one element a rank.

    Attributes:
        ends: kernel complete: own work done, everything this rank receives is there and seen.
        computed: last logical work-group of phase 1 computed.
        fabric: link use and byte counts.
        memory_served: bytes that each rank's memory served.
    """

    ends: list[float]
    computed: list[float]
    fabric: Fabric
    memory_served: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """Until the last rank is done."""
        return max(self.ends)

    @property
    def skew(self) -> float:
        """(last - first) / last over ranks."""
        return (max(self.ends) - min(self.ends)) / max(self.ends)


class Arrivals:
    """Counts deliveries; its event fires when all that were expected are there (at once when none were)."""

    def __init__(self, env: simpy.Environment, expected: int) -> None:
        self.event, self.left = env.event(), expected
        if expected == 0:
            self.event.succeed()

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.event.succeed()


class Kernel:
    """State of one replay; `run` is the only entry."""

    def __init__(self, machine: Machine, operation: Operation, mode: Mode, starts: Sequence[float]) -> None:
        self.env = simpy.Environment()
        self.machine, self.op, self.mode = machine, operation, mode
        self.world = operation.world_size
        self.starts = starts
        self.fabric = Fabric(self.env, machine)
        name = operation.operator
        memory, cap = machine.memory_rate(name), machine.wg_memory_rate(name, operation.waves, operation.in_flight)
        self.overhead = machine.kernels[name].wg_overhead
        self.write_cost = machine.write_cost(name)
        math = machine.math_rate(name)
        self.memory = [SharedRate(self.env, memory, cap) for _ in range(self.world)]
        self.math = [SharedRate(self.env, math, math / machine.compute_units) for _ in range(self.world)]
        self.classes = operation.classes_by_slice if mode == "rdma" else operation.classes
        self.class_of = [{wg: i for i, c in enumerate(cs) for wg in c.members} for cs in self.classes]
        self.flags: dict[tuple[str, int, int, int], simpy.Event] = {}  # (name, source rank, source class, dest rank)
        self.computed = [0.0] * self.world
        self.ends = [0.0] * self.world
        self.slices = self._slices() if mode == "rdma" else []
        expected = [sum(d == r for s in self.slices for d, _, _ in s.values()) for r in range(self.world)]
        if operation.protocol == "one_shot":
            expected = [sum(len(s) for s in self.slices) - len(s) for s in self.slices] if self.slices else expected
        self.arrived = [Arrivals(self.env, n) for n in expected]
        # What hardware may watch: (rank, step, work-groups) of every result, when it has been computed.
        self.on_result: Callable[[int, Step, int], None] | None = None

    def _slices(self) -> list[dict[int, list]]:
        """Per rank, slice -> [dest, bytes, logical work-groups left] of those that leave the rank."""
        table: list[dict[int, list]] = []
        for rank, plan in enumerate(self.op.plans):
            mine: dict[int, list] = {}
            for number, dest, sent in zip(
                plan.slice.tolist(), plan.dest.tolist(), plan.bytes_sent.tolist(), strict=True
            ):
                if dest != rank or self.op.protocol == "one_shot":
                    entry = mine.setdefault(number, [dest, 0, 0])
                    if entry[0] != dest:
                        raise ModelError(
                            f"slice {number} of rank {rank} has destinations {entry[0]} and {dest}; allowed: one"
                        )
                    entry[1] += sent
                    entry[2] += 1
            table.append(mine)
        return table

    def _flag(self, name: str, source: int, index: int, dest: int) -> simpy.Event:
        return self.flags.setdefault((name, source, index, dest), self.env.event())

    def _senders(self, rank: int, work: WorkClass, source: int, dest_of_step: int | None) -> list[int]:
        """Classes of `source` that hold a work-group of `work` and have steps for `dest_of_step` (None: any)."""
        found = {self.class_of[source][wg] for wg in work.members if wg in self.class_of[source]}
        if dest_of_step is None:
            return sorted(found)
        return sorted(i for i in found if any(s.dest == dest_of_step for s in self.classes[source][i].steps))

    def peers(self, rank: int) -> list[int]:
        """The other ranks, the next one first."""
        return [(rank + hop) % self.world for hop in range(1, self.world)]

    def work(self, rank: int, step_read: float, step_flops: float, weight: int) -> simpy.Event:
        """Event: `weight` work-groups have each read and computed that much."""
        both = Arrivals(self.env, 2)
        self.memory[rank].request(step_read, weight, both)
        self.math[rank].request(step_flops, weight, both)
        return both.event

    def write(self, rank: int, each: float, weight: float = 1.0) -> None:
        """`weight` writers of `each` bytes take their share of a rank's memory; nobody waits for them."""
        self.memory[rank].request(each * self.write_cost, weight)

    def store(self, rank: int, dest: int, each: float, weight: int, previous: simpy.Event | None) -> Generator:
        """`weight` work-groups store `each` bytes at `dest`; returns the event of the last byte's arrival."""
        if previous is not None and not previous.processed:
            yield previous
        drained = self.env.event()

        def arrive() -> None:
            self.write(dest, each, weight)  # the write takes its share of the peer's memory
            drained.succeed()

        self.fabric.send(rank, dest, each * weight, arrive)
        yield self.env.timeout(each / self.machine.store_rate)
        return drained

    def signal(self, flag: simpy.Event, drained: simpy.Event | None) -> Process:
        """Release a flag behind everything stored before it: the work-group stands still until that has drained."""
        if drained is not None and not drained.processed:
            yield drained
        yield self.env.timeout(self.machine.sync_cost)
        self.fabric.flag(flag.succeed)

    def wait(self, events: list[simpy.Event]) -> Process:
        """Spin until all flags are there."""
        yield self.env.all_of(events)
        yield self.env.timeout(self.machine.sync_cost)

    def put_slices(self, rank: int, step: Step, dests: list[int]) -> None:
        """rdma: account for the slices that this step worked on; a complete one leaves by one put with its flag behind it."""
        for number, members in step.slices:
            entry = self.slices[rank][number]
            entry[2] -= members
            if entry[2] == 0:
                for dest in dests:

                    def arrive(dest: int = dest, size: float = entry[1]) -> None:
                        self.write(dest, size)
                        self.fabric.flag(self.arrived[dest])

                    self.fabric.send(rank, dest, entry[1], arrive, puts=1)

    def phase_one(self, rank: int, index: int, work: WorkClass) -> Process:
        """All logical work-groups of a class, in the plan's order, each result sent where the protocol says."""
        weight = len(work.members)
        last = {step.dest: i for i, step in enumerate(work.steps)}
        drained: simpy.Event | None = None
        for i, step in enumerate(work.steps):
            math = max(step.flops, self.op.tile_flops)
            yield self.work(rank, step.bytes_read * self.op.read_fraction, math, weight)
            yield self.env.timeout(self.overhead)
            self.computed[rank] = max(self.computed[rank], self.env.now)
            dests = self.peers(rank) if self.op.protocol == "one_shot" else [d for d in (step.dest,) if d != rank]
            if self.mode == "compute" or not dests or self.op.protocol == "one_shot":
                self.write(rank, step.bytes_sent, weight)
            if self.on_result is not None:
                self.on_result(rank, step, weight)
            if self.mode == "peer":
                for dest in dests:
                    drained = yield from self.store(rank, dest, step.bytes_sent, weight, drained)
                if self.op.protocol != "one_shot" and dests and last[step.dest] == i:
                    yield from self.signal(self._flag("ready", rank, index, step.dest), drained)
            elif self.mode == "rdma" and dests:
                if self.op.protocol != "one_shot":
                    self.write(rank, step.bytes_sent, weight)  # into the slice's buffer, which the NIC reads
                self.put_slices(rank, step, dests)
        if self.mode == "peer" and self.op.protocol == "one_shot":
            for dest in self.peers(rank):
                yield from self.signal(self._flag("ready", rank, index, dest), drained)

    def wait_ready(self, rank: int, work: WorkClass) -> Process:
        """Everything that peers send to this class in phase 1 is here."""
        if self.mode == "rdma":
            yield from self.wait([self.arrived[rank].event])
            return
        for source in self.peers(rank):
            wanted = None if self.op.protocol == "one_shot" else rank
            events = [self._flag("ready", source, i, rank) for i in self._senders(rank, work, source, wanted)]
            if events:
                yield from self.wait(events)

    def phase_two(self, rank: int, index: int, work: WorkClass) -> Process:
        """two_phase: reduce the tiles this rank owns, store the sums everywhere. one_shot: reduce everything, locally."""
        weight = len(work.members)
        one_shot = self.op.protocol == "one_shot"
        mine = [step for step in work.steps if one_shot or step.dest == rank]
        drained: simpy.Event | None = None
        if mine:
            yield from self.wait_ready(rank, work)
        for step in mine:
            yield self.work(rank, self.world * step.bytes_sent, self.world * step.bytes_sent / 4, weight)
            yield self.env.timeout(self.overhead)
            result = step.bytes_sent * self.op.reduce_bytes
            self.write(rank, result, weight)
            for dest in [] if one_shot else self.peers(rank):
                if self.mode == "peer":
                    drained = yield from self.store(rank, dest, result, weight, drained)
                else:
                    drained = self.env.event()
                    self.fabric.send(rank, dest, result * weight, drained.succeed, puts=1)
        if one_shot:
            return
        if mine:
            for dest in self.peers(rank):
                yield from self.signal(self._flag("done", rank, index, dest), drained)
        for source in self.peers(rank):
            if any(step.dest == source for step in work.steps):
                yield from self.wait(
                    [self._flag("done", source, i, rank) for i in self._senders(rank, work, source, source)]
                )

    def physical(self, rank: int, index: int, work: WorkClass) -> Process:
        """The life of a class of physical work-groups."""
        yield self.env.timeout(self.starts[rank] + self.machine.launch)
        yield from self.phase_one(rank, index, work)
        if self.mode != "compute" and self.world > 1:
            if self.op.protocol == "scatter":
                yield from self.wait_ready(rank, work)
            else:
                yield from self.phase_two(rank, index, work)
        self.ends[rank] = max(self.ends[rank], self.env.now)

    def run(self) -> Outcome:
        """Replay to the end. Raises `ModelError` when a work-group waits for something that never comes."""
        alive = [
            self.env.process(self.physical(r, i, w)) for r in range(self.world) for i, w in enumerate(self.classes[r])
        ]
        self.env.run()
        stuck = sum(p.is_alive for p in alive)
        if stuck:
            raise ModelError(
                f"{stuck} of {len(alive)} classes of work-groups wait for ever in {self.op.operator} ({self.mode}, {self.op.protocol})"
            )
        return Outcome(self.ends, self.computed, self.fabric, [m.served for m in self.memory])


def replay(machine: Machine, operation: Operation, mode: Mode, starts: Sequence[float] | None = None) -> Outcome:
    """Run `operation` as one kernel a rank. `starts`: how late each rank launches, seconds (default: all at 0)."""
    starts = starts or [0.0] * operation.world_size
    return Kernel(machine, operation, mode, starts).run()

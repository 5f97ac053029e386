"""The memory model on tiles, buffers and engines (litmus programs on single words are in test_litmus.py)."""

import numpy as np
import pytest

from emulator.memory_model import Buffer, Memory, Scope, Sem, Where, sync

I32 = np.dtype(np.int32)
OLDEST, NEWEST = 1.0, 0.0


class Fixed:
    """A chooser that always takes the same."""

    def __init__(self, tile: float = OLDEST, stale: int = 99, place: int = 0):
        self.part, self.depth, self.before = tile, stale, place

    def stale(self, t, w, n):
        return min(self.depth, n - 1)

    def tile(self, t, w):
        return self.part

    def place(self, t, w, n):
        return min(self.before, n)


class Setup:
    """Two threads on different gpus, a buffer of 16 int32 and two flags."""

    def __init__(self, mode: str = "weak", **choices):
        self.conflicts: list = []
        self.memory = Memory(Fixed(**choices), mode, self.conflicts.append)
        self.a = self.memory.thread(0, "a", "tile", "A")
        self.b = self.memory.thread(1, "b", "tile", "B")
        self.data = Buffer("data", 0, np.zeros(64, np.uint8), 4)
        self.flags = Buffer("flags", 0, np.zeros(8, np.uint8), 4)

    def write(self, t, w, values, sem=Sem.PLAIN, scope=Scope.SYS):
        return self.memory.store(
            t, w, np.broadcast_to(np.array(values, np.int32), (w.n,)).copy(), sem, scope, f"{t}-write", "store"
        )

    def read(self, t, w, sem=Sem.PLAIN, scope=Scope.SYS):
        return self.memory.load(t, w, I32, sem, scope, f"{t}-read", "load").tolist()

    def signal(self, t, flag=0):
        self.write(t, Where(self.flags, flag, flag + 1), 1, Sem.RELEASE)

    def wait(self, t, flag=0):
        self.memory.chooser.depth = 0
        assert self.read(t, Where(self.flags, flag, flag + 1), Sem.ACQUIRE) == [1]


def tile(s: Setup, lo: int = 0, hi: int = 16) -> Where:
    return Where(s.data, lo, hi)


def test_a_tile_is_as_old_as_the_adversary_likes_until_it_is_known() -> None:
    s = Setup()
    s.write(s.a, tile(s), 1)
    s.write(s.a, tile(s), 2)
    assert s.read(s.a, tile(s)) == [2] * 16
    assert s.read(s.b, tile(s)) == [0] * 16
    s.memory.chooser.part = NEWEST
    assert s.read(s.b, tile(s)) == [2] * 16
    s.memory.chooser.part = 0.25
    assert s.read(s.b, tile(s)) == [0] * 4 + [2] * 12
    s.signal(s.a)
    s.wait(s.b)
    s.memory.chooser.part = OLDEST
    assert s.read(s.b, tile(s)) == [2] * 16


def test_no_value_older_than_a_known_one() -> None:
    s = Setup()
    s.write(s.a, tile(s), 1)
    s.signal(s.a)
    s.write(s.a, tile(s), 2)
    s.wait(s.b)
    assert s.read(s.b, tile(s)) == [1] * 16


def test_footprints_of_different_shape_share_their_history() -> None:
    s = Setup()
    s.write(s.a, tile(s, 0, 8), 1)
    s.write(s.a, Where(s.data, 1, 8, np.array([7, 1])), [5, 6])
    s.write(s.a, tile(s, 6, 10), 9)
    every_second = Where(s.data, 0, 16, np.arange(0, 16, 2))
    assert s.read(s.a, tile(s)) == [1, 6, 1, 1, 1, 1, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0]
    assert s.read(s.a, every_second) == [1, 1, 1, 9, 9, 0, 0, 0]
    assert s.read(s.b, tile(s)) == [0] * 16
    s.signal(s.a)
    s.wait(s.b)
    assert s.read(s.b, every_second) == [1, 1, 1, 9, 9, 0, 0, 0]


def test_wide_elements_over_narrow_cells() -> None:
    s = Setup()
    pad = Buffer("pad", 0, np.zeros(32, np.uint8), 1)
    wide = pad.where(8, 8)
    s.memory.store(s.a, wide, np.array([1 << 40], np.int64), Sem.RELEASE, Scope.SYS, "w", "store")
    assert s.memory.load(s.b, wide, np.dtype(np.int64), Sem.ACQUIRE, Scope.SYS, "r", "load").tolist() == [0]
    s.memory.chooser.depth = 0
    assert s.memory.load(s.b, wide, np.dtype(np.int64), Sem.ACQUIRE, Scope.SYS, "r", "load").tolist() == [1 << 40]
    assert not s.conflicts


def test_a_store_may_go_before_one_that_its_thread_does_not_know() -> None:
    s = Setup(place=1, tile=NEWEST)
    s.write(s.a, tile(s), 1)
    s.write(s.b, tile(s), 2)
    assert s.read(s.a, tile(s)) == [1] * 16
    assert s.data.mem.view(np.int32).tolist() == [1] * 16
    s.memory.chooser.before = 0
    s.write(s.b, tile(s), 3)
    assert s.data.mem.view(np.int32).tolist() == [3] * 16


def kinds(s: Setup) -> list[tuple[str, str, str]]:
    return [(c.kind, str(c.earlier and c.earlier.site), c.later.site) for c in s.conflicts]


def test_conflicts_are_reported_once_and_only_without_order() -> None:
    s = Setup()
    s.write(s.a, tile(s, 0, 4), 1)
    s.read(s.b, tile(s, 4, 8))  # does not overlap
    assert kinds(s) == []
    s.read(s.b, tile(s, 3, 8))
    s.read(s.b, tile(s, 2, 8))
    assert kinds(s) == [("race", "A-write", "B-read")]
    assert s.conflicts[0].cell == 3
    s.write(s.a, tile(s, 7, 8), 1)  # b has read it
    assert kinds(s)[1:] == [("race", "B-read", "A-write")]


def test_ordered_accesses_are_not_reported() -> None:
    s = Setup()
    for turn in range(1, 6):
        s.write(s.a, tile(s), turn)
        s.signal(s.a)
        s.wait(s.b)
        assert s.read(s.b, tile(s)) == [turn] * 16
        s.signal(s.b, 1)
        s.wait(s.a, 1)
    assert kinds(s) == []


def test_reads_by_several_threads_are_all_remembered() -> None:
    s = Setup()
    c = s.memory.thread(2, "c", "tile", "C")
    for t in (s.a, s.b, c):
        s.read(t, tile(s))
    s.signal(s.b)
    s.memory.chooser.depth = 0
    s.wait(c)
    s.write(c, tile(s), 1)  # knows of b's read, not of a's
    assert kinds(s) == [("race", "A-read", "C-write")]


def test_lanes_that_move_within_a_work_group() -> None:
    s = Setup()
    s.write(s.a, Where(s.data, 0, 16, None, key=("16", 0)), 1)
    s.read(s.a, Where(s.data, 0, 16, None, key=("16", 0)))
    assert kinds(s) == []
    s.read(s.a, Where(s.data, 0, 8, None, key=("8", 0)))
    assert kinds(s) == [("lanes", "A-write", "A-read")]
    lead = s.memory.thread(0, "a", "lead", "A0")
    sync.block_barrier(s.memory, (lead, s.a))
    s.write(s.a, tile(s), 2)
    sync.block_barrier(s.memory, (lead, s.a))
    s.read(s.a, Where(s.data, 0, 4, None, key=("4", 0)))
    s.read(lead, Where(s.data, 0, 1))
    assert len(kinds(s)) == 1


def arrivals(s: Setup, sem: Sem, reset: tuple[Sem, Scope]) -> None:
    """Three threads count up; the last one of them sets the counter back."""
    last = s.memory.thread(2, "c", "tile", "C")
    counter = Where(s.flags, 0, 1)
    for t in (s.a, s.b, last):
        s.memory.rmw(t, counter, I32, lambda old: old + np.int32(1), sem, Scope.SYS, f"{t}-arrive", "atomic_add")
    s.memory.chooser.depth = 0
    s.write(last, counter, 0, *reset)


@pytest.mark.parametrize("reset", [(Sem.PLAIN, Scope.SYS), (Sem.RELAXED, Scope.CTA)], ids=["plain", "block"])
def test_the_last_arrival_may_reset_the_counter_only_if_it_is_ordered_after_the_others(reset: tuple) -> None:
    s = Setup()
    arrivals(s, Sem.ACQ_REL, reset)
    assert kinds(s) == []
    s = Setup()
    arrivals(s, Sem.RELAXED, reset)
    # It has observed the arrival before its own, and is ordered after that one alone.
    assert {(earlier, later) for _, earlier, later in kinds(s)} == {("A-arrive", "C-write")}


def test_a_reset_that_is_strong_enough_for_all_needs_no_order() -> None:
    s = Setup()
    arrivals(s, Sem.RELAXED, (Sem.RELAXED, Scope.SYS))
    assert kinds(s) == []


def test_a_load_of_every_thread_is_not_over_when_its_work_group_writes_there_without_a_barrier() -> None:
    for barrier, found in ((True, []), (False, [("lanes", "A-read", "A0-write")])):
        s = Setup()
        lead = s.memory.thread(0, "a", "lead", "A0")
        word = Where(s.flags, 0, 1)
        s.read(s.a, word, Sem.RELAXED)
        if barrier:
            sync.block_barrier(s.memory, (lead, s.a))
        s.write(lead, word, 1, Sem.RELAXED)
        assert kinds(s) == found


def test_puts_are_known_after_quiet_or_fence_and_signal_only() -> None:
    s = Setup()
    source = Buffer("source", 0, np.ones(64, np.uint8), 4, shared=False)
    nic = sync.Engine(s.memory, s.memory.thread(0, None, "nic", "NIC"))
    flag = Where(s.flags, 0, 1)

    def put(lo: int):
        u8 = np.dtype(np.uint8)
        return nic.copy(s.a, Where(source, lo, lo + 4), tile(s, lo, lo + 4), None, u8, f"put {lo}", "put")

    def signal(data=None) -> None:
        nic.signal(s.a, flag, lambda old: old + np.int32(1), I32, data, "signal", "signal")

    first, second = put(0), put(4)
    s.memory.chooser.depth = 0
    signal(second)  # a put with signal: after its own data, not after the first put
    s.read(s.b, flag, Sem.ACQUIRE)
    assert s.memory.known(s.b, second)
    assert not s.memory.known(s.b, first)
    nic.ordered()
    third = put(8)
    signal()
    s.read(s.b, flag, Sem.ACQUIRE)
    assert s.memory.known(s.b, first)
    assert not s.memory.known(s.b, third)
    assert not s.memory.known(s.a, first)  # a fence orders, it does not complete
    nic.complete([s.a])
    assert s.memory.known(s.a, third)
    assert kinds(s) == []


def test_the_source_of_a_put_may_not_change_before_it_was_read() -> None:
    s = Setup()
    nic = sync.Engine(s.memory, s.memory.thread(0, None, "nic", "NIC"))
    source = Buffer("source", 0, np.ones(64, np.uint8), 4)
    nic.copy(s.a, Where(source, 0, 4), tile(s, 0, 4), None, np.dtype(np.uint8), "put", "put")
    s.write(s.a, Where(source, 8, 12), 1)
    assert kinds(s) == []
    s.write(s.a, Where(source, 3, 4), 1)
    assert kinds(s) == [("race", "put", "A-write")]


def test_vector_clocks_grow_with_the_threads() -> None:
    s = Setup()
    s.write(s.a, tile(s), 1)
    s.signal(s.a)
    threads = [s.memory.thread(2, f"t{i}", "tile", f"T{i}") for i in range(40)]
    for t in threads:
        s.wait(t)
        s.read(t, tile(s))
    sync.together(s.memory, [*threads, s.b], Scope.SYS)
    s.write(s.b, tile(s), 2)
    assert kinds(s) == []


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="memory mode 'strong' is not one of sc, late, stale, weak"):
        Memory(Fixed(), "strong")

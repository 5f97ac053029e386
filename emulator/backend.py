"""What executes the memory operations of interpreted kernels: the contract between the interpreter and the modes.

`emulator.interpreter` turns every operation of a Triton kernel that another work-group could notice into one call of the active
`Backend`. Whoever implements the protocol decides when an operation takes effect, which value a load sees and which
work-group runs next: `emulator.processes` with real concurrency, `emulator.replay` with an operational memory model.

Conventions, for all methods:

* Every call is made by the work-group that runs, one at a time; a backend may switch greenlets inside any call.
* `addresses` is a fresh uint64 array, 1-D: only active lanes, in row-major order of the tile. It is never empty.
* Values are numpy arrays of the same length. bfloat16 is carried as uint16 and fp8 as uint8 bit patterns.
* `Lanes` tells which lanes of which tile these are. Triton scalars have shape `(1,)`.
* Where the kernel stands: `emulator.sites.site()`, cheap enough to be called when wanted, from within any call.
"""

from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from .memory_model.order import Scope, Sem

__all__ = ["Backend", "Compare", "Lanes", "Nic", "Rmw", "Scope", "Sem", "Signal"]


class Rmw(Enum):
    """Read-modify-write operations. Integers wrap; MIN and MAX are signed, UMIN and UMAX unsigned (floats arrive bit-cast)."""

    ADD = "add"
    FADD = "fadd"
    FADD_BF16 = "fadd_bf16"
    MIN = "min"
    MAX = "max"
    UMIN = "umin"
    UMAX = "umax"
    AND = "and"
    OR = "or"
    XOR = "xor"
    XCHG = "xchg"


class Compare(Enum):
    """Comparisons of `wait_until`, as NVSHMEM numbers them."""

    EQ = 0
    NE = 1
    GT = 2
    LE = 3
    LT = 4
    GE = 5


class Lanes(NamedTuple):
    """The tile of an access.

    Attributes:
        shape: of the tile.
        mask: which of its lanes are active (bool, same shape); None: all.
        assembly: done by inline assembly, around which Triton puts no block barrier.
        alone: thread 0 does a scalar access without the others, as assembly with a predicate on `%tid` says.
    """

    shape: tuple[int, ...]
    mask: np.ndarray | None
    assembly: bool = False
    alone: bool = False


class Signal(NamedTuple):
    """What a put or `signal_op` does to a uint64 flag at the peer once its data is there.

    Attributes:
        address: of the flag, in this rank's own heap (symmetric: the peer's lies at the same offset).
        value: operand.
        add: add `value` to the flag; else set it.
    """

    address: int
    value: int
    add: bool


class Nic(Protocol):
    """NVSHMEM's device side. All addresses are this rank's own symmetric ones; all calls are made once a work-group."""

    def my_pe(self) -> int:
        """This rank."""

    def n_pes(self) -> int:
        """The number of ranks."""

    def put(
        self, target: int, source: int, nbytes: int, peer: int, signal: Signal | None, blocking: bool, block: bool
    ) -> None:
        """Copy `nbytes` from `source` to `target` at `peer`, at any later time, then apply `signal` there.

        blocking: returns after the source has been read; else the source is read at any time until `quiet`.
        block: called by all threads of the work-group together; else by one thread, which knows only of its own stores and of
            those that a block barrier ordered before.
        """

    def get(self, target: int, source: int, nbytes: int, peer: int, blocking: bool, block: bool) -> None:
        """Copy `nbytes` from `source` at `peer` to `target`; complete on return if blocking, else at any time until `quiet`."""

    def signal(self, signal: Signal, peer: int) -> None:
        """Apply `signal` at `peer`, at any later time; after earlier puts to that peer only if a `fence` lies between."""

    def wait_until(self, address: int, dtype: np.dtype, compare: Compare, value: int) -> int:
        """Wait until the flag at `address` compares true with `value`; acquires at system scope. Returns what it saw."""

    def fence(self) -> None:
        """Puts and signals of this work-group so far reach each peer before later ones to the same peer."""

    def quiet(self) -> None:
        """Returns when all puts, gets and signals of this work-group are complete."""

    def barrier_all(self) -> None:
        """`quiet`, then wait for one work-group of every rank to call it."""


class Backend(Protocol):
    """What a mode must provide to run kernels."""

    nic: Nic

    def program_id(self, axis: int) -> int:
        """Of the work-group that runs."""

    def num_programs(self, axis: int) -> int:
        """Size of its grid."""

    def clock(self) -> int:
        """%globaltimer: nanoseconds, never going back."""

    def pause(self, nanoseconds: int) -> None:
        """nanosleep: a good moment to let others run."""

    def load(self, addresses: np.ndarray, dtype: np.dtype, sem: Sem, scope: Scope, lanes: Lanes) -> np.ndarray:
        """Values of `dtype` at `addresses`, read by the threads that hold the lanes.

        sem: PLAIN for `tl.load`; RELAXED at SYS for volatile ones; others from atomic loads and assembly.
        """

    def store(self, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes) -> None:
        """Store `values`. PLAIN for `tl.store`; others from atomic stores and assembly. Scalars are stored by thread 0."""

    def store_async(self, addresses: np.ndarray, values: np.ndarray, lanes: Lanes) -> None:
        """A store through a tensor descriptor: in flight, and not covered by any barrier, fence or release, until `wait_async`."""

    def wait_async(self, reading_only: bool) -> None:
        """Wait for earlier async stores of this work-group: until visible, or only until their sources may be overwritten."""

    def atomic_rmw(
        self, op: Rmw, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        """Apply `op` (`emulator.numerics.combine`) at each address, in lane order; returns the old values.

        Scalars are done by thread 0. Triton compiles a relaxed or acquire `atomic_add(p, 0)` to a strong load.
        """

    def atomic_cas(
        self, addresses: np.ndarray, expected: np.ndarray, desired: np.ndarray, sem: Sem, scope: Scope, lanes: Lanes
    ) -> np.ndarray:
        """Where the old value equals `expected` bit for bit, replace it; returns the old values."""

    def barrier(self) -> None:
        """Block barrier: `tl.debug_barrier`, bar.sync, s_barrier."""

    def fence(self, scope: Scope, sc: bool) -> None:
        """fence.acq_rel or (`sc`) fence.sc at `scope`, executed by every thread."""

"""Symmetric memory and interpreted kernels for CPU tensors of a user's own distributed program (torchrun with gloo, say).

Whether Triton interprets is fixed when it is imported, and the user's process may need it compiled. So each rank's process gets a
companion process that interprets and that maps the same heaps: tensors made here are plain CPU tensors, whose bytes both see.

    symm = emulator.remote.connect(rank, world_size, exchange)      # exchange: host all-gather of picklables
    x = symm.empty((4, 8), torch.float32)
    symm.call("my_kernels:all_reduce", x)                           # my_kernels.all_reduce(symm, x) in the companion

All ranks must run on one machine.
"""

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import errors, heap
from .errors import EmulatorError, Hang, RankDied
from .processes.channel import Channel
from .processes.options import HEAP_BYTES, Counts, Options
from .processes.pool import trace_of
from .processes.programs import name_of

Exchange = Callable[[Any], list[Any]]
_TICK = 0.1
_GRACE_S = 2.0  # without progress, all work-groups waiting, and a rank has ended: what it had sent has arrived by then


def _same_machine() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read()


def _open_heaps(rank: int, world_size: int, heap_bytes: int, exchange: Exchange) -> list[int]:
    """Every rank's heap file, opened through /proc while its owner holds it; none ever has a name.

    What one rank cannot do, all ranks raise: nobody waits for a rank that gave up.
    """
    fds: list[int] = []
    number, problem = -1, None
    try:
        number = heap.create(heap_bytes, world_size)
    except EmulatorError as error:
        problem = error
    places = exchange((_same_machine(), os.getpid(), number, problem))
    try:
        for other, (machine, pid, theirs, failed) in enumerate(places):
            if failed is not None:
                raise failed
            try:
                if machine != places[rank][0]:
                    raise OSError("another machine")
                fds.append(number if other == rank else os.open(f"/proc/{pid}/fd/{theirs}", os.O_RDWR | os.O_CLOEXEC))
            except OSError as error:
                raise EmulatorError(
                    f"heap of rank {other} cannot be opened by rank {rank} ({error}); allowed: ranks on one machine, of one user"
                ) from None
    except EmulatorError as error:
        problem = error
    problems = [p for p in exchange(problem) if p is not None]
    if problems:
        for fd in {*fds, number} - {-1}:
            os.close(fd)
        raise problems[0]
    return fds


def connect(
    rank: int, world_size: int, exchange: Exchange, *, heap_bytes: int = HEAP_BYTES, resident: int = 4, timeout_s: float = 300.0,
    seed: int = 0, options: Options | None = None,
) -> "RemoteSymm":  # fmt: skip
    """Collective: this rank's symmetric memory, with a companion process behind it.

    Args:
        rank, world_size: this rank and how many there are.
        exchange: collective; takes a picklable, returns every rank's, by rank.
        heap_bytes: what programs may allocate of each rank's heap.
        resident: physical work-groups of a rank at a time.
        timeout_s: seconds without progress of any rank's kernels after which a call raises `Hang`.
        seed, options: of scheduling and delivery.
    """
    if not 0 <= rank < world_size:
        raise EmulatorError(f"rank is {rank}; allowed: 0 to {world_size - 1}")
    fds = _open_heaps(rank, world_size, heap_bytes, exchange)
    symm = None
    try:
        symm = RemoteSymm(rank, fds, exchange, heap_bytes, resident, timeout_s, seed, options or Options())
        return symm
    finally:
        pids = exchange(None if symm is None else symm.pids)  # and everybody has opened what it needs
        for fd in fds:
            os.close(fd)
        if symm is not None:
            symm.watch(pids)


def from_group(group_name: str, heap_bytes: int = HEAP_BYTES) -> "RemoteSymm":
    """`connect` for the ranks of a torch.distributed process group, exchanging over that group."""
    import torch.distributed as dist

    group = dist.distributed_c10d._resolve_process_group(group_name)

    def exchange(value: Any) -> list[Any]:
        values: list[Any] = [None] * group.size()
        dist.all_gather_object(values, value, group=group)
        return values

    return connect(group.rank(), group.size(), exchange, heap_bytes=heap_bytes)


class RemoteSymm:
    """One rank's symmetric memory in a process that does not interpret. Made by `connect`.

    Attributes:
        rank, world_size, device, state: as of every symmetric memory object; `state` is this process's own.
        bases: int64 [world_size], address of each rank's heap as THIS process maps it.
        counts: what the companion has done so far.
    """

    def __init__(
        self, rank: int, fds: list[int], exchange: Exchange, heap_bytes: int, resident: int, timeout_s: float, seed: int,
        options: Options,
    ):  # fmt: skip
        self.rank, self.world_size, self.device = rank, len(fds), torch.device("cpu")
        self.state: dict[Any, Any] = {}
        self.counts = Counts()
        self._exchange, self._resident, self._timeout_s = exchange, resident, timeout_s
        heaps = heap.Heaps(fds, heap_bytes, self.world_size + rank)
        self.bases = torch.tensor(heaps.bases, dtype=torch.int64)
        self._controls = [heaps.control(r) for r in range(self.world_size)]
        self._lock = threading.RLock()
        self._peers: list[tuple[int, int]] = []  # (rank, descriptor of one of its processes)
        mine, theirs = socket.socketpair()
        end, self._lifeline = os.pipe()
        self._crash = os.memfd_create("crash", os.MFD_CLOEXEC)
        passed = [theirs.fileno(), end, self._crash]
        package = __package__
        root = str(Path(__file__).parents[package.count(".") + 1])
        env = os.environ | {
            "TRITON_INTERPRET": "1",
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        }
        env |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
        code = f"from {package}.processes.companion import main; main({', '.join(map(str, passed))}, {fds}, {heap_bytes}, {rank})"
        self._companion = subprocess.Popen(
            [sys.executable, "-c", code], env=env, pass_fds=[*passed, *fds], stdin=subprocess.DEVNULL
        )
        theirs.close()
        os.close(end)
        self._channel: Channel | None = Channel(mine, heaps)
        atexit.register(self.close)
        self._ask("start", seed, resident, options, list(sys.path), patient=True)

    @property
    def pids(self) -> tuple[int, int]:
        """This process's and its companion's."""
        return os.getpid(), self._companion.pid

    def watch(self, pids: list[tuple[int, int] | None]) -> None:
        """Notice from now on when a process of another rank ends; `pids` of all ranks."""
        for rank, theirs in enumerate(pids):
            for pid in theirs if theirs is not None and rank != self.rank else ():
                with contextlib.suppress(OSError):
                    self._peers.append((rank, os.pidfd_open(pid)))

    # ---- symmetric memory
    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Collective: a zero-filled CPU tensor at the same offset of every rank's heap. Raises `OutOfHeap`."""
        return self._ask("empty", shape, dtype, name)

    def barrier(self) -> None:
        """Collective host barrier."""
        self._exchange(None)

    def exchange(self, value: Any) -> list[Any]:
        """Collective host all-gather of a picklable."""
        return self._exchange(value)

    def max_resident(self, num_warps: int) -> int:
        """Physical work-groups of a rank at a time."""
        return self._resident

    def launch(self, *_: Any, **__: Any) -> None:
        """Refused: kernels run in the companion."""
        raise EmulatorError(
            "launch in a process that does not interpret; allowed: call('module:function', ...), which launches"
        )

    # ---- calls
    def call(self, function: Callable[..., Any] | str, *args: Any) -> Any:
        """`function(symm, *args)` in the companion, where `symm` can launch kernels on the same heaps; returns its result.

        Tensors in the heap are shared, so what the function writes into them is seen here. Other CPU tensors, also inside
        containers and dataclasses, are copied there (contiguous), results are copied back; writes into such arguments are lost.

        Args:
            function: "module:function", "path.py::function" or a function at the top level of a module.

        Raises `ProgramFailed` or another `EmulatorError` naming rank and source line, `RankDied`, `Hang`.
        """
        return self._ask("call", name_of(function), list(sys.path), args=args)

    def _ask(self, *request: Any, args: tuple | None = None, patient: bool = False) -> Any:
        with self._lock:
            if self._channel is None:
                raise EmulatorError(
                    f"symmetric memory of rank {self.rank} is closed; allowed: before close() and before an error"
                )
            try:
                packed = None if args is None else self._channel.pack(*args)
                self._channel.send(*request)
                if packed is not None:
                    self._channel.post(packed)
                return self._answer(patient)
            except (EOFError, OSError) as error:
                raise self._died() from error
            except (Hang, RankDied, KeyboardInterrupt):
                self.close()
                raise

    def _answer(self, patient: bool) -> Any:
        while True:
            self._wait(patient)
            kind, *rest = self._channel.receive()
            if kind == "exchange":
                self._channel.send(self._exchange(rest[0]))
            elif kind == "failed":
                name, text, trace = rest
                error = getattr(errors, name, errors.ProgramFailed)(text)
                error.add_note(trace)
                raise error
            elif kind == "ready":
                return None
            else:
                self.counts = rest[1]
                return rest[0]

    def _wait(self, patient: bool) -> None:
        """Until the companion says something; raises `Hang` if no rank gets on, `RankDied` if that is since one ended."""
        before, since = None, time.monotonic()
        while not select.select([self._channel.socket], [], [], _TICK)[0]:
            progress = [control.progress for control in self._controls]
            if progress != before or patient:
                before, since = progress, time.monotonic()
            elif time.monotonic() - since > self._timeout_s:
                raise self._hang()
            elif (
                self._controls[self.rank].idle
                and time.monotonic() - since > _GRACE_S
                and (gone := self._ended()) is not None
            ):
                raise RankDied(f"rank {gone} ended while rank {self.rank} waits for it in a kernel")

    def _ended(self) -> int | None:
        """A rank of which a process has ended, if there is one."""
        ended = select.select([descriptor for _, descriptor in self._peers], [], [], 0)[0]
        return next((rank for rank, descriptor in self._peers if descriptor in ended), None)

    def _hang(self) -> Hang:
        head = f"no progress for {self._timeout_s:.3g} s"
        self._controls[self.rank].stop = 1
        if select.select([self._channel.socket], [], [], 1.0)[0]:
            kind, *rest = self._channel.receive()
            if kind == "failed" and rest[0] == "Hang":
                return Hang(f"{head}\n{rest[1]}")
        self._companion.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        return Hang(f"{head}\nrank {self.rank} is busy{trace_of(self._crash)}")

    def _died(self) -> RankDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._companion.wait(1.0)
        status = self._companion.poll()
        where = trace_of(self._crash)
        self.close()
        how = "closed its connection" if status is None else f"exited with status {status}"
        if status is not None and status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        return RankDied(f"the process that interprets kernels for rank {self.rank} {how}{where}")

    def close(self) -> None:
        """End the companion. Tensors stay valid."""
        with self._lock:
            if self._channel is None:
                return
            self._channel.close()
            self._channel = None
            for descriptor in (self._lifeline, self._crash, *(d for _, d in self._peers)):
                os.close(descriptor)
            self._peers.clear()
            try:
                self._companion.wait(2)
            except subprocess.TimeoutExpired:
                self._companion.kill()
                self._companion.wait()
            atexit.unregister(self.close)

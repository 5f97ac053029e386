"""Ranks as processes: started once, serving many programs, watched by the caller's process."""

import contextlib
import mmap
import os
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Self

from .. import errors, heap
from ..errors import EmulatorError, Hang, RankDied
from . import programs
from .options import HEAP_BYTES, Counts, Options
from .zygote import zygote

_TICK = 0.05
_LOOKS = 50


class Ranks:
    """A pool of `world_size` ranks, each an OS process. A context manager; ranks start with the first program.

    Args:
        world_size: ranks, 1 to 64.
        resident: physical work-groups of a rank at a time.
        heap_bytes: what programs may allocate of each rank's symmetric heap.
        timeout_s: seconds without progress of any rank after which a run counts as hung.
        options: the adversary.

    Attributes:
        counts: what each rank did in the last program that ended well.
    """

    def __init__(
        self, world_size: int, *, resident: int = 4, heap_bytes: int = HEAP_BYTES, timeout_s: float = 60.0,
        options: Options | None = None,
    ):  # fmt: skip
        _check("world_size", world_size, 1, 64)
        _check("resident", resident, 1, 1024)
        if timeout_s <= 0:
            raise EmulatorError(f"timeout_s is {timeout_s}; allowed: more than 0")
        heap.file_bytes(heap_bytes)  # refuses what is no size
        self.world_size, self.resident, self.heap_bytes = world_size, resident, heap_bytes
        self.timeout_s, self.options = timeout_s, options or Options()
        self.counts: list[Counts] = []
        self.pids: list[int] = []
        self._connections: list[Connection] = []
        self._controls: list[heap.Control] = []
        self._crashes: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- life
    def _start(self) -> None:
        if self._connections:
            return
        n = self.world_size
        heaps: list[int] = []
        theirs: list[Connection] = []
        try:
            for _ in range(n):
                heaps.append(heap.create(self.heap_bytes, n))
                self._controls.append(heap.Control.from_buffer(mmap.mmap(heaps[-1], heap.PAGE)))
                mine, other = Pipe()
                self._connections.append(mine)
                theirs.append(other)
                self._crashes.append(os.memfd_create("crash"))
            request = {
                "do": "spawn",
                "world_size": n,
                "heap_bytes": self.heap_bytes,
                "cwd": os.getcwd(),
                "environ": dict(os.environ) | {"TRITON_INTERPRET": "1"},
            }
            fds = [c.fileno() for c in theirs] + heaps + self._crashes
            self.pids = zygote().ask(request, fds)
        except BaseException:
            self.close()
            raise
        finally:
            for connection in theirs:
                connection.close()
            for fd in heaps:
                os.close(fd)

    def close(self) -> dict[int, int | None]:
        """End all ranks; returns how each ended. The next `run` starts new ones."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        status = {}
        if self.pids:
            with contextlib.suppress(EmulatorError):
                status = zygote().ask({"do": "reap", "pids": self.pids, "patience": 5.0})
        for connection in self._connections:
            connection.close()
        for fd in self._crashes:
            os.close(fd)
        self.pids, self._connections, self._controls, self._crashes = [], [], [], []
        return status

    # ---- one program
    def run(
        self, program: Callable[..., Any] | str, *args: Any, seed: int = 0, resident: int | None = None,
        timeout_s: float | None = None, options: Options | None = None,
    ) -> list[Any]:  # fmt: skip
        """`program(symm, *args)` on every rank; what each returned, by rank.

        Args:
            program: function at the top level of a module, or "module:function" or "path.py::function".
            args: picklable, the same for all ranks.
            seed: of scheduling and delivery. The processes run concurrently, so equal seeds do not give equal runs.
            resident, timeout_s, options: for this program only.

        Raises `ProgramFailed` and other `EmulatorError`s naming the rank, `RankDied`, `Hang`. After an error the next
        `run` starts new ranks.
        """
        _check("seed", seed, 0, (1 << 63) - 1)
        task = programs.Task(
            programs.name_of(program),
            _pickled(args),
            seed,
            resident or self.resident,
            options or self.options,
            list(sys.path),
        )
        self._start()
        try:
            return _Run(self, timeout_s or self.timeout_s, task.options).until_done(pickle.dumps(task))
        except BaseException:
            self.close()
            raise


def _check(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise EmulatorError(f"{name} is {value!r}; allowed: {low} to {high}")


def _pickled(args: tuple) -> bytes:
    try:
        return pickle.dumps(args)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise EmulatorError(
            f"arguments of the program cannot be sent to the ranks: {error}; allowed: picklable ones"
        ) from None


def trace_of(crash: int) -> str:
    """`, at file:line in function`: where the last traceback in a crash file stands, outside Triton and the emulator."""
    text = os.pread(crash, 1 << 16, 0).decode(errors="replace")
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for file, line, function in re.findall(r'File "([^"]+)", line (\d+) in (\S+)', text):
        if not file.startswith((own, "<")) and f"{os.sep}triton{os.sep}" not in file:
            return f", at {os.path.relpath(file)}:{line} in {function}"
    return ""


class _Run:
    """The caller's side of one program: gathers, answers, watches."""

    def __init__(self, ranks: Ranks, timeout_s: float, options: Options):
        self.ranks, self.timeout_s, self.stall_s = ranks, timeout_s, min(timeout_s, options.stall_s)
        n = ranks.world_size
        self.results: list[Any] = [None] * n
        self.counts = [Counts() for _ in range(n)]
        self.running = set(range(n))
        self.ready: set[int] = set()
        self.gathering: dict[int, tuple[bytes, str]] = {}  # rank -> value and where it stands
        self.words: dict[int, str] = {}  # rank -> what it said when told to stop
        self.last_change = time.monotonic()
        self.signature: Any = None
        self.idle = [0] * n

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self.ranks._connections[rank].send_bytes(data)
        except OSError:
            raise self._died(rank) from None

    def until_done(self, task: bytes) -> list[Any]:
        for rank in range(self.ranks.world_size):
            self._send(rank, task)
        while self.running:
            self._listen(_TICK)
            self._watch()
        self.ranks.counts = self.counts
        return self.results

    def _listen(self, seconds: float, stopping: bool = False) -> None:
        connections = self.ranks._connections
        for connection in wait([connections[r] for r in self.running], seconds):
            rank = connections.index(connection)
            try:
                message = pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                if stopping:
                    self.running.discard(rank)
                    continue
                raise self._died(rank) from None
            self._hear(rank, message, stopping)

    def _hear(self, rank: int, message: tuple, stopping: bool) -> None:
        kind, *rest = message
        n = self.ranks.world_size
        if kind == "ready":
            self.ready.add(rank)
            if len(self.ready) == n:
                for each in range(n):
                    self._send(each, pickle.dumps("go"))
        elif kind == "exchange":
            self.gathering[rank] = (rest[0], rest[1])
            if len(self.gathering) == n:
                values = pickle.dumps([self.gathering[r][0] for r in range(n)])
                self.gathering = {}
                for each in range(n):
                    self._send(each, values)
        elif kind == "done":
            self.results[rank], self.counts[rank] = pickle.loads(rest[0]), rest[1]
            self.running.discard(rank)
        elif stopping:
            self.words[rank] = rest[1]
            self.running.discard(rank)
        else:
            name, text, trace = rest
            error = getattr(errors, name, errors.ProgramFailed)(text)
            error.add_note(trace)
            raise error

    # ---- trouble
    def _watch(self) -> None:
        controls = self.ranks._controls
        signature = ([c.progress for c in controls], len(self.running), sorted(self.gathering))
        now = time.monotonic()
        if signature != self.signature:
            self.signature, self.last_change = signature, now
            self.idle = [c.idle for c in controls]
            return
        # A rank that has not had the processor since the last change has not seen it: it must have looked again, many times.
        stuck = all(controls[r].idle > self.idle[r] + _LOOKS or r in self.gathering for r in self.running)
        limit = self.stall_s if stuck else self.timeout_s
        if now - self.last_change > limit:
            raise self._hang(limit)

    def _hang(self, seconds: float) -> Hang:
        ranks = self.ranks
        for control in ranks._controls:
            control.stop = 1
        end = time.monotonic() + 1.0
        silent = self.running - set(self.gathering)
        while silent & self.running and time.monotonic() < end:
            self._listen(_TICK, stopping=True)
        for rank in silent & self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(ranks.pids[rank], signal.SIGUSR1)
        if silent & self.running:
            time.sleep(0.2)
        lines = []
        for rank in range(ranks.world_size):
            if rank in self.words:
                lines.append(self.words[rank])
            elif rank in self.gathering:
                lines.append(
                    f"rank {rank} waits for the other ranks in a host barrier or exchange, at {self.gathering[rank][1]}"
                )
            elif rank in self.running:
                lines.append(f"rank {rank} is busy{trace_of(self.ranks._crashes[rank])}")
            else:
                lines.append(f"rank {rank} has finished")
        return Hang("\n".join([f"no progress for {seconds:.3g} s", *lines]))

    def _died(self, rank: int) -> RankDied:
        pid = self.ranks.pids[rank]
        status = zygote().ask({"do": "reap", "pids": [pid], "patience": 1.0})[pid]
        where = trace_of(self.ranks._crashes[rank])
        self.ranks.pids = [p for p in self.ranks.pids if p != pid]
        if status is None:
            return RankDied(f"rank {rank} closed its connection{where}")
        if status < 0:
            name = signal.Signals(-status).name
            hint = (
                "; a kernel used an address that is mapped by nobody"
                if -status in (signal.SIGSEGV, signal.SIGBUS)
                else ""
            )
            return RankDied(f"rank {rank} died: killed by signal {-status} ({name}){where}{hint}")
        return RankDied(
            f"rank {rank} died: its process exited with status {status} in the middle of the program{where}"
        )

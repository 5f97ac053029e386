"""A rank's process: serves programs over a connection, one after the other, until that is closed."""

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from .. import errors, sites
from ..errors import EmulatorError, ProgramFailed
from ..heap import PAGE, Heaps
from . import programs
from .memory import Memory
from .symm import Symm


class Rank:
    """State that outlives programs: the heaps, and how much of this rank's was used."""

    def __init__(self, rank: int, connection: Connection, heaps: Heaps):
        self.rank, self.connection, self.heaps = rank, connection, heaps
        self._bytes = torch.frombuffer(heaps.bytes_of(rank), dtype=torch.uint8)
        self._used = PAGE

    def send(self, *message: Any) -> None:
        self.connection.send_bytes(pickle.dumps(message))

    def receive(self) -> Any:
        return pickle.loads(self.connection.recv_bytes())

    def exchange(self, value: Any) -> list[Any]:
        """All-gather through the parent; it is told where this rank stands, for the report of a hang."""
        self.send("exchange", pickle.dumps(value), sites.text(sites.chain(sys._getframe(1), 3)))
        return [pickle.loads(each) for each in self.receive()]

    def run(self, task: programs.Task) -> None:
        """One program. Nobody starts before every rank's heap is clean."""
        self._bytes[: self._used].zero_()
        self.send("ready")
        self.receive()
        symm = None
        try:
            for entry in task.path:
                if entry not in sys.path:
                    sys.path.append(entry)
            memory = Memory(self.rank, self.heaps, task.options, task.seed)
            symm = Symm(self.heaps, memory, task.resident, self.exchange)
            torch.manual_seed(task.seed * self.heaps.ranks + self.rank)
            result = programs.find(task.program)(symm, *pickle.loads(task.args))
            symm.finish()
            answer = pickle.dumps(result)
        except (EOFError, BrokenPipeError):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever a program raises is its rank's last word)
            self.send("failed", *failure(self.rank, error))
        else:
            self.send("done", answer, symm.counts)
        finally:
            self._used = max(self._used, symm.allocator.top if symm else PAGE)
            symm = None


def failure(rank: int, error: BaseException) -> tuple[str, str, str]:
    """(class, text, traceback) of what a program raised, for the caller to raise again."""
    trace = "".join(traceback.format_exception(error))
    places = sites.of_exception(error)
    if isinstance(error, EmulatorError):
        text = str(error)
        if isinstance(error, errors.Hang) or not places:  # says all itself
            return type(error).__name__, text, trace
        if text.startswith("work-group"):
            return type(error).__name__, f"rank {rank} {text}", trace
        return type(error).__name__, f"rank {rank}: {text}, at {sites.text(places[:1])}", trace
    where = sites.text(places[:3])
    return ProgramFailed.__name__, f"rank {rank}: {type(error).__name__}: {error}, at {where}", trace


def serve(rank: int, connection: int, heap_fds: list[int], heap_bytes: int, crash: int) -> None:
    """Main function of a rank's process. `crash`: file that tracebacks of crashes, and of SIGUSR1, go to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(file=crash, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=crash, all_threads=False)
    heaps = Heaps(heap_fds, heap_bytes, rank)
    for fd in heap_fds:
        os.close(fd)
    me = Rank(rank, Connection(connection), heaps)
    try:
        while True:
            me.run(me.receive())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return

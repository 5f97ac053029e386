"""Tasks in forked children of a warm process: what a child imports or changes is gone with it, and a hung one can be ended."""

import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from .errors import EmulatorError


@dataclass(frozen=True)
class Lost:
    """What came of a task that returned nothing: it ran out of time, raised, or its process ended."""

    why: str
    error: EmulatorError | None = None


@dataclass
class _Child:
    pid: int
    index: int
    end: float


def _start(task: Callable[[], Any]) -> tuple[int, Connection]:
    receiver, sender = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        sender.close()
        return pid, receiver
    try:
        receiver.close()
        answer: Any
        try:
            answer = task()
        except EmulatorError as error:
            answer = Lost(str(error), error)
        except BaseException:  # noqa: BLE001 (the parent tells; a child must not unwind into the parent's code)
            answer = Lost(traceback.format_exc(limit=-3).strip())
        sender.send_bytes(pickle.dumps(answer))
        sys.stdout.flush()
    finally:
        os._exit(0)


def forked(tasks: Sequence[Callable[[], Any]], jobs: int, limit_s: float) -> Iterator[tuple[int, Any]]:
    """(index of a task, what it returned or `Lost`) as tasks end; `jobs` children at a time, each `limit_s` seconds at most.

    Children are ended when the caller stops early.
    """
    if jobs < 1:
        raise EmulatorError(f"jobs is {jobs}; allowed: 1 or more")
    waiting = list(enumerate(tasks))[::-1]
    running: dict[Connection, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, task = waiting.pop()
                pid, connection = _start(task)
                running[connection] = _Child(pid, index, time.monotonic() + limit_s)
            left = min(child.end for child in running.values()) - time.monotonic()
            ready = wait(list(running), timeout=max(0.0, left))
            for connection in ready:
                child = running.pop(connection)
                try:
                    answer = pickle.loads(connection.recv_bytes())
                except EOFError:
                    answer = Lost("its process ended without a word")
                connection.close()
                os.waitpid(child.pid, 0)
                yield child.index, answer
            for connection, child in list(running.items()):
                if time.monotonic() >= child.end:
                    del running[connection]
                    _end(child, connection)
                    yield child.index, Lost(f"no answer within {limit_s:g} s")
    finally:
        for connection, child in running.items():
            _end(child, connection)


def _end(child: _Child, connection: Connection) -> None:
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    connection.close()

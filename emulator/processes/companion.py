"""The process beside a rank of a user's own distributed program: interprets kernels on that rank's memory.

Started by `emulator.remote.connect`, ends when its caller closes the connection or ends, whatever way.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
from typing import Any

import torch

from .. import interpreter
from ..heap import Heaps
from . import programs
from .channel import Channel
from .memory import Memory
from .options import Options
from .symm import Symm
from .worker import failure


def _live_and_let_die(lifeline: int) -> None:
    """End this process when the caller's end of the pipe is closed, even in the middle of a kernel."""

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main(sock: int, lifeline: int, crash: int, heap_fds: list[int], heap_bytes: int, rank: int) -> None:
    """Serve calls until the connection is closed. The first message brings seed, residency, options and import path."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt ends
    faulthandler.enable(file=crash, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=crash, all_threads=False)
    _live_and_let_die(lifeline)
    torch.set_num_threads(1)
    interpreter.install()
    heaps = Heaps(heap_fds, heap_bytes, rank)
    for fd in heap_fds:
        os.close(fd)
    channel = Channel(socket.socket(fileno=sock), heaps)
    try:
        _, seed, resident, options, path = channel.receive()
        serve(channel, heaps, rank, seed, resident, options, path)
    except (EOFError, ConnectionError):
        return


def serve(
    channel: Channel, heaps: Heaps, rank: int, seed: int, resident: int, options: Options, path: list[str]
) -> None:
    """Answer requests: "empty" allocates, "call" runs a function. One symmetric memory object serves all of them."""

    def exchange(value: Any) -> list[Any]:
        channel.send("exchange", value)
        return channel.receive()[0]

    symm = Symm(heaps, Memory(rank, heaps, options, seed), resident, exchange)
    channel.send("ready")
    while True:
        kind, *request = channel.receive()
        try:
            if kind == "empty":
                answer: Any = symm.empty(*request)
            else:
                name, entries = request
                for entry in (*path, *entries):
                    if entry not in sys.path:
                        sys.path.append(entry)
                args = channel.receive()  # a message of their own: now the modules of their types can be found
                answer = programs.find(name)(symm, *args)
                symm.finish()
        except (EOFError, BrokenPipeError):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever a call raises is raised again at the caller's)
            channel.send("failed", *failure(rank, error))
        else:
            channel.send("done", answer, symm.counts)

"""The process that ranks are forked from: started fresh with TRITON_INTERPRET=1, so that the caller may compile its kernels.

It imports torch and triton once (seconds); a rank then costs milliseconds. It talks to its parent over a socket and ends,
with all its ranks, when that is closed, whatever way the parent ended.
"""

import atexit
import contextlib
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import EmulatorError

_LIMIT = 1 << 16  # bytes of one message
_PR_SET_PDEATHSIG = 1


# ------------------------------------------------------------------------------------------------- in the caller's process
class Zygote:
    """The caller's end."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package = __package__
        root = str(Path(__file__).parents[package.count(".") + 1])
        env = os.environ | {
            "TRITON_INTERPRET": "1",
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
        }
        env |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {package}.zygote import main; main({there.fileno()})"],
            pass_fds=[there.fileno()],
            env=env,
            stdin=subprocess.DEVNULL,
        )
        there.close()
        self._socket = here

    def alive(self) -> bool:
        """Whether it can be used by this process."""
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, request: dict[str, Any], fds: list[int] = ()) -> Any:
        """One request, one answer. Raises `EmulatorError` if the process is gone."""
        try:
            socket.send_fds(self._socket, [pickle.dumps(request)], list(fds))
            answer = self._socket.recv(_LIMIT)
        except OSError:
            answer = b""
        if not answer:
            status = self.process.wait()
            raise EmulatorError(
                f"the process that starts ranks ended with status {status}; its own words are on stderr"
            )
        return pickle.loads(answer)

    def close(self) -> None:
        """End it and all its ranks."""
        self._socket.close()
        if self.owner == os.getpid():
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


_zygote: Zygote | None = None


def zygote() -> Zygote:
    """This process's zygote, started when first needed."""
    global _zygote
    if _zygote is None or not _zygote.alive():
        _zygote = Zygote()
        atexit.register(_zygote.close)
    return _zygote


# ------------------------------------------------------------------------------------------------- in the zygote
def _spawn(request: dict[str, Any], fds: list[int], mine: socket.socket) -> list[int]:
    """Fork the ranks; fds: a connection each, a heap each, a crash file each."""
    n = request["world_size"]
    connections, heaps, crashes = fds[:n], fds[n : 2 * n], fds[2 * n :]
    parent = os.getpid()
    pids = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(1)
                mine.close()
                for other in range(n):
                    if other != rank:
                        os.close(connections[other])
                        os.close(crashes[other])
                os.environ.clear()
                os.environ.update(request["environ"])
                os.chdir(request["cwd"])
                from . import worker

                worker.serve(rank, connections[rank], heaps, request["heap_bytes"], crashes[rank])
                status = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        pids.append(pid)
    return pids


def _reap(pids: list[int], patience: float) -> dict[int, int | None]:
    """Wait statuses of ranks that have ended or are about to; None for those that go on."""
    found: dict[int, int | None] = dict.fromkeys(pids)
    end = time.monotonic() + patience
    while None in found.values() and time.monotonic() < end:
        for pid, status in found.items():
            if status is None:
                with contextlib.suppress(ChildProcessError):
                    done, code = os.waitpid(pid, os.WNOHANG)
                    if done:
                        found[pid] = os.waitstatus_to_exitcode(code)
        time.sleep(0.002)
    return found


def main(fd: int) -> None:
    """Serve until the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    mine = socket.socket(fileno=fd)
    import torch

    torch.set_num_threads(1)
    from .. import interpreter
    from . import worker  # noqa: F401  (imported before forking)

    interpreter.install()
    living: set[int] = set()
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(mine, _LIMIT, 1024)
        except ConnectionError:
            data = b""
        if not data:
            break
        request = pickle.loads(data)
        if request["do"] == "spawn":
            answer: Any = _spawn(request, fds, mine)
            living |= set(answer)
        else:
            answer = _reap(request["pids"], request["patience"])
            living -= {pid for pid, status in answer.items() if status is not None}
        for each in fds:
            os.close(each)
        with contextlib.suppress(OSError):
            mine.send(pickle.dumps(answer))
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _reap(list(living), 5.0)

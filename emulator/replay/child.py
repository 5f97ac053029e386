"""A process in which kernels are interpreted, for callers whose own process compiles them: interpretation is fixed at import.

    with Interpreting() as there:
        result = there.call("my_tests:look_for_races", 2, seeds=50)
"""

import os
import pickle
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection, Pipe
from typing import Any, Self

from ..errors import EmulatorError, Hang, RankDied


class Interpreting:
    """Calls functions by name in a process of its own, started with TRITON_INTERPRET=1; a context manager."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        path = [p or os.getcwd() for p in sys.path]
        env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; from {__name__} import serve; serve(int(sys.argv[1]))", str(theirs.fileno())],
            env=env, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, name: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """`name` is "module:function" or "path.py::function"; arguments and result must be picklable.

        Raises what the function raises, `Hang` after `timeout_s`, `RankDied` if the process ends.
        """
        try:
            self._connection.send((name, args, kwargs))
            if not self._connection.poll(timeout_s):
                self._process.kill()
                raise Hang(f"{name} did not return within {timeout_s} s")
            failed, payload = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise RankDied(f"the process that ran {name} ended with exit status {self._process.wait()}") from None
        if failed:
            raise payload
        return payload

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(fd: int) -> None:
    """The child: call what is asked for until the other end closes."""
    import torch

    from ..processes.programs import find

    torch.set_num_threads(1)
    connection = Connection(fd)
    while True:
        try:
            name, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            reply = pickle.dumps((False, find(name)(*args, **kwargs)))
        except BaseException as error:
            reply = pickle.dumps((True, _portable(error)))
        connection.send_bytes(reply)


def _portable(error: BaseException) -> BaseException:
    """The error itself if it is one of ours, else its text."""
    if isinstance(error, EmulatorError):
        return error
    return EmulatorError("".join(traceback.format_exception(error)).strip())

"""A kernel launch: its work-groups, their arguments, and the record that belongs to these."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import EmulatorError
from ..interpreter import prepare
from ..memory_model import Scope, sync
from .workgroup import WorkGroup

if TYPE_CHECKING:
    from .engine import Run
    from .host import Host


@dataclass(frozen=True)
class Launch:
    """`grid` programs of `kernel` with `args` by name."""

    kernel: Any
    grid: int
    args: dict[str, Any]

    def groups(self, run: "Run", host: "Host", number: int) -> list[WorkGroup]:
        """The work-groups of this launch, ordered after everything that their host knows."""
        if not isinstance(self.grid, int) or self.grid < 0:
            raise EmulatorError(f"grid is {self.grid!r}; allowed: an integer, 0 or more")
        identity: list[Any] = [id(self.kernel), self.grid]
        for name, value in self.args.items():
            identity.append((name, self._identity(run, host.rank, name, value)))
        made: list[Callable[[], Any]] = []

        def body() -> None:  # prepared when a work-group needs the interpreter
            if not made:
                made.append(prepare(self.kernel, self.args))
            made[0]()

        def locate(address: int) -> tuple[int, int]:
            return run.world.locate(host.rank, address)

        kernel = getattr(self.kernel, "__name__", "kernel")
        groups = []
        for pid in range(self.grid):
            root = run.record((host.rank, pid, *identity)) if run.options.record else None
            wg = WorkGroup((host.rank, number, pid), run.memory, body, root, locate, kernel)
            wg.program_id, wg.grid = (pid, 0, 0), (self.grid, 1, 1)
            groups.append(wg)
        record = run.memory.publish(host.thread, Scope.SYS)
        for wg in groups:
            for t in wg.threads:
                sync.start(run.memory, t, record)
        return groups

    @staticmethod
    def _identity(run: "Run", rank: int, name: str, value: Any) -> Any:
        """Equal if a work-group that has loaded nothing yet cannot tell the values apart: of tensors, the place."""
        if not isinstance(value, torch.Tensor):
            return id(value) if callable(value) else (type(value).__name__, value if value.__hash__ else repr(value))
        buf = run.world.register(rank, value, name)
        if buf is None:
            return ("heap", value.data_ptr(), str(value.dtype))
        buf.written = False
        return ("private", id(buf), value.storage_offset(), str(value.dtype))

"""The host programs: `program(symm, *args)` of every rank in a greenlet of its own, and the symmetric memory they are given."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import greenlet
import torch

from ..errors import EmulatorError
from ..memory_model import Scope, sync
from .launch import Launch
from .workgroup import WorkGroup

if TYPE_CHECKING:
    from .engine import Run


class Host:
    """The host of one rank: an actor that runs until its program launches a kernel or waits for the other hosts.

    Attributes:
        result: what the program returned; `finished` whether it did.
        asked: what it waits for: "launch", "barrier", "exchange" or "".
    """

    def __init__(self, run: "Run", rank: int, program: Callable[..., Any], args: tuple):
        self.key, self.rank, self.count = (rank, -1, -1), rank, 0
        self.name = f"rank {rank} host"
        self.thread = run.memory.thread(rank, ("host", rank), "host", self.name)
        self.finished, self.result, self.asked = False, None, ""
        self.engines: list[sync.Engine] = []
        self.launches = 0
        self.waiting: deque[WorkGroup] = deque()
        self.groups: list[WorkGroup] = []  # of the present launch
        self.started: list[WorkGroup] = []  # of all launches
        self._left = 0
        self._offer: Any = None
        self._answer: Any = None
        self.symm = ReplaySymmetricMemory(self, run)
        self._green = greenlet.greenlet(lambda _: program(self.symm, *args))

    def step(self, run: "Run") -> None:
        """Run the program up to its next launch, collective, or end."""
        answer, self._answer = self._answer, None
        run.in_host = self
        try:
            asked = self._green.switch(answer)
        except Exception as error:  # noqa: BLE001 (whatever a program raises is a finding)
            run.failed(self, error)
        finally:
            run.in_host = None
        run.ready.remove(self)
        if self._green.dead:
            self.finished, self.result, self.asked = True, asked, ""
            return
        self.asked, payload = asked
        if self.asked == "launch":
            self._launch(run, payload)
        else:
            self._offer = payload
            self._meet(run)

    def ask(self, what: str, payload: Any = None) -> Any:
        """Called by the program: hand control back until the answer is there."""
        return self._green.parent.switch((what, payload))

    def _meet(self, run: "Run") -> None:
        """Once all hosts are at the same collective, all go on and know all that any of them knew."""
        hosts = run.hosts
        if any(h.asked != self.asked for h in hosts):
            return
        for h in hosts:  # a host barrier completes the ranks' puts too (nvshmem_barrier_all)
            for engine in h.engines:
                engine.complete((h.thread,))
            h.engines = []
        sync.together(run.memory, [h.thread for h in hosts], Scope.SYS)
        offers, exchange = [h._offer for h in hosts], self.asked == "exchange"
        for h in hosts:
            h._answer, h.asked = list(offers) if exchange else None, ""
            run.ready.append(h)

    def _launch(self, run: "Run", launch: Launch) -> None:
        self.groups = launch.groups(run, self, self.launches)
        self.launches += 1
        self.started += self.groups
        self._left = len(self.groups)
        self.waiting.extend(self.groups)
        for _ in range(run.options.resident):
            if self.waiting:  # one that ends at once lets others in
                run.admit(self.waiting.popleft())
        if not self.groups:
            self.asked = ""
            run.ready.append(self)

    def group_ended(self, run: "Run", wg: WorkGroup) -> None:
        """A slot is free for the next work-group; after the last one the host goes on."""
        self._left -= 1
        if self.waiting:
            run.admit(self.waiting.popleft())
        elif self._left == 0:
            self.asked = ""
            run.ready.append(self)

    def kill(self) -> None:
        for wg in self.groups:
            wg.kill()
        if not self._green.dead:
            self._green.throw(greenlet.GreenletExit)


class ReplaySymmetricMemory:
    """Symmetric memory of one rank in replay mode; the interface of every provider of symmetric memory.

    Attributes: rank, world_size, device (cpu), bases (int64 [world_size], the heaps as this rank maps them), state (dict).
    """

    def __init__(self, host: Host, run: "Run"):
        self._host, self._run = host, run
        self.rank, self.world_size = host.rank, run.world.world_size
        self.device = torch.device("cpu")
        self.bases = run.world.bases(host.rank)
        self.state: dict = {}

    def empty(self, shape: tuple[int, ...] | int, dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Collective: a zero-filled tensor at the same offset on every rank."""
        tensor = self._run.world.empty(self.rank, shape, dtype, name, self._run.options.poison)
        self.barrier()
        return tensor

    def barrier(self) -> None:
        """Collective host barrier."""
        self._host.ask("barrier")

    def exchange(self, value: Any) -> list[Any]:
        """Collective host all-gather."""
        return self._host.ask("exchange", value)

    def max_resident(self, num_warps: int) -> int:
        """Physical work-groups at a time: the option `resident`, whatever the number of warps."""
        return self._run.options.resident

    def launch(
        self, kernel: Any, grid: int, args: dict[str, Any], *, num_warps: int = 4, num_stages: int = 1, waits: bool = True
    ) -> None:  # fmt: skip
        """Run `grid` programs of the kernel to their ends. A kernel that waits may not have more than are resident."""
        if waits and grid > self._run.options.resident:
            raise EmulatorError(
                f"grid is {grid}; allowed: up to {self._run.options.resident} resident work-groups for a kernel that waits"
            )
        self._host.ask("launch", Launch(kernel, grid, args))

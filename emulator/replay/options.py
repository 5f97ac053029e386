"""Options of a replay run."""

from dataclasses import dataclass, field

from ..errors import EmulatorError
from ..memory_model import MODES

PERSONALITIES = ("uniform", "pct", "round_robin", "ahead", "behind")


@dataclass(frozen=True)
class Decisions:
    """What the scheduler and the adversary decided, sparsely; what is not listed takes its default.

    Attributes:
        switches: (actor, its operation count) -> actor that runs instead of it. Default: an actor runs until it blocks, then
            the first that can run. Actors are (rank, launch, work-group); a host is (rank, -1, -1).
        choices: (actor, its operation count, choice within the operation) -> what the adversary took. Default: the newest value.
    """

    switches: dict[tuple, tuple] = field(default_factory=dict)
    choices: dict[tuple, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.switches) + len(self.choices)


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """How to run a program under the adversary.

    Attributes:
        memory: "weak" (all the model allows), or for control experiments "late" (stores arrive late, loads are fresh),
            "stale" (stores arrive at once, loads may be old), "sc" (sequentially consistent).
        races: whether the race detector runs.
        personality: fix the scheduler ("uniform", "pct", "round_robin", "ahead", "behind"); None lets the seed pick.
        resident: physical work-groups of a rank at a time, in the order of their program ids.
        stop_at_first: end the run at the first report; else go on and collect them.
        lanes: report work-groups whose own tile accesses conflict between two barriers with lanes mapped differently.
        poison: report plain loads of symmetric memory that nobody has written.
        ignore: names of buffers whose races are on purpose (sentinels in the data) and not reported.
        host: treat torch operations of the host programs on heap tensors as accesses of the rank's host.
        record: remember what work-groups did after which values, instead of interpreting them each time.
        max_steps: operations after which a run counts as a livelock.
        grace: operations that each spinning work-group gets with everything visible, before a hang is declared.
        trace: keep the last this many operations for `ReplayResult.trace`.
        decisions: replay these instead of drawing from the seed (see `shrink`).
    """

    memory: str = "weak"
    races: bool = True
    personality: str | None = None
    resident: int = 4
    stop_at_first: bool = True
    lanes: bool = True
    poison: bool = True
    ignore: tuple[str, ...] = ()
    host: bool = True
    record: bool = True
    max_steps: int = 200_000
    grace: int = 64
    trace: int = 0
    decisions: Decisions | None = None

    def __post_init__(self) -> None:
        if self.memory not in MODES:
            raise EmulatorError(f"memory is {self.memory!r}; allowed: {', '.join(MODES)}")
        if self.personality not in (None, *PERSONALITIES):
            raise EmulatorError(f"personality is {self.personality!r}; allowed: {', '.join(PERSONALITIES)} or None")
        if self.resident < 1:
            raise EmulatorError(f"resident is {self.resident}; allowed: 1 or more")

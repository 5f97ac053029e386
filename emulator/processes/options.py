"""Options and counts of `processes` mode."""

from dataclasses import dataclass, fields

from ..errors import EmulatorError

HEAP_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """How adversarial a run is.

    Attributes:
        deliver: chance of 256, at each memory operation, that one store or transfer that is still under way arrives.
            None: the seed picks 1, 2, 8 or 32, and for how long nothing arrives while all work-groups wait. 256 with `pending` 0
            delivers everything at once.
        switch: chance of 256, at each memory operation, that another work-group of the rank goes on. None: 16, 64 or 256.
        pending: stores of one work-group that may be under way at a time.
        stall_s: seconds without any change of memory, all work-groups waiting, after which a run counts as hung
            (`timeout_s` applies if that is less).
    """

    deliver: int | None = None
    switch: int | None = None
    pending: int = 16
    stall_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("deliver", "switch"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 256:
                raise EmulatorError(f"{name} is {value}; allowed: 0 to 256, or None")
        if self.pending < 0 or self.stall_s <= 0:
            raise EmulatorError(f"pending, stall_s are {self.pending}, {self.stall_s}; allowed: 0 or more, more than 0")


@dataclass
class Counts:
    """What one rank did in one program.

    Attributes:
        operations: memory operations, barriers and fences of all work-groups.
        remote_stores: stores and puts delivered to other ranks' heaps.
        flags_delivered: atomics, strong stores and signals that changed other ranks' heaps.
        late: stores delivered after a later operation of their work-group.
        switches: changes from one work-group to another.
        launches: kernels.
    """

    operations: int = 0
    remote_stores: int = 0
    flags_delivered: int = 0
    late: int = 0
    switches: int = 0
    launches: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

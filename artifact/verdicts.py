"""What may be said of a claim. Only these words; every verdict carries its reason."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Status(StrEnum):
    """Verdicts on a claim."""

    REPRODUCED = "reproduced"
    REPRODUCED_SIMULATED = "reproduced in simulation"
    TREND = "trend reproduced (size differs)"
    INCONCLUSIVE = "inconclusive"
    CONTRADICTED = "contradicted"
    NOT_EVALUATED = "not evaluated"
    MODEL_AGREES = "model agrees"
    MODEL_AGREES_SIZE = "model agrees (size differs)"
    MODEL_DISAGREES = "model disagrees"


# What makes `claims_strict` fail: an evaluated claim that the evidence speaks against.
STRICT = frozenset({Status.CONTRADICTED})


@dataclass(frozen=True)
class Verdict:
    """A status, why, and the evidence's label (backend and machine; empty when there is none)."""

    status: Status
    detail: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}" if self.status is Status.NOT_EVALUATED else str(self.status)

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {k: str(v) for k, v in asdict(self).items()}


def not_evaluated(reason: str) -> Verdict:
    """A claim that this run says nothing about, and why."""
    return Verdict(Status.NOT_EVALUATED, reason)

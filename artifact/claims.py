"""The claims: `claims.yaml` as typed data, and their verdicts on the evidence of a run."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from . import checkers
from .config_model import one_line
from .errors import ArtifactError
from .evidence import Evidence
from .files import read_json
from .verdicts import STRICT, Status, Verdict, not_evaluated

FILE = Path(__file__).with_name("claims.yaml")
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
Confidence = Literal["read", "third_party", "memory"]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Block):
    """A number (or, with value null, a statement) of the paper, and how well it is known."""

    name: str
    value: float | None
    unit: str
    confidence: Confidence

    def __str__(self) -> str:
        return (
            f"{self.unit} [{self.confidence}]"
            if self.value is None
            else f"{self.name} {self.value:g} {self.unit} [{self.confidence}]"
        )


class Time(_Block):
    """What evaluating a claim costs: minutes of a person, minutes of the machine, disk."""

    human_min: float = Field(ge=0)
    compute_min: float = Field(ge=0)
    disk_mb: float = Field(ge=0)


class Check(_Block):
    """One way to judge a claim: which evidence, which checker, and the checker's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    evidence: Literal["measured", "verified", "build", "model"]
    checker: str

    @model_validator(mode="after")
    def _known(self) -> "Check":
        if self.checker not in checkers.CHECKERS:
            raise ValueError(f"one of {', '.join(checkers.CHECKERS)}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The checker's own options."""
        return dict(self.model_extra or {})


class Claim(_Block):
    """One claim of the paper."""

    id: str = Field(pattern=r"^P\d+$")
    title: str
    statement: str
    kind: Literal["performance", "simulation", "functional", "model", "resources"]
    paper: tuple[Number, ...] = Field(min_length=1)
    platform: str
    experiment: str
    target: str = Field(pattern=r"^(fig|table)_\w+$")
    needs: str
    time: Time
    independent: str
    dependent: str
    expected: str
    tolerance: dict[str, float]
    checks: tuple[Check, ...] = Field(min_length=1)
    not_covered: str

    @property
    def command(self) -> str:
        """What makes the claim's figure or table."""
        return f"snakemake {self.target}"

    def value(self, *names: str) -> float:
        """The first of the paper's numbers with one of these names."""
        for name in names:
            for number in self.paper:
                if number.name == name and number.value is not None:
                    return number.value
        raise ArtifactError(
            f"{self.id}: paper number is {'/'.join(names)!r}; allowed: {', '.join(n.name for n in self.paper)}"
        )


class NotAttempted(_Block):
    """Something of the paper that this artifact leaves out, and why."""

    what: str
    reason: str


class Paper(_Block):
    """The paper, as cited."""

    title: str
    authors: str
    venue: str
    preprint: str
    baseline: str


class ClaimsFile(_Block):
    """`claims.yaml`."""

    paper: Paper
    claims: tuple[Claim, ...]
    not_attempted: tuple[NotAttempted, ...]


class Judged(BaseModel):
    """A claim with its verdicts: of this run, of the recorded measurements, of the model."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    claim: Claim
    this_run: Verdict
    reference: Verdict | None = None
    model: Verdict | None = None


@cache
def load(path: Path = FILE) -> ClaimsFile:
    """All claims. Raises `ArtifactError`, one line, when the file does not fit."""
    try:
        return ClaimsFile.model_validate(yaml.safe_load(path.read_text()))
    except ValidationError as error:
        raise ArtifactError(f"{path}: {one_line(error, ClaimsFile)}") from None
    except (OSError, yaml.YAMLError) as error:
        raise ArtifactError(f"{path}: {str(error).splitlines()[0]}") from None


def judge(claim: Claim, evidence: Evidence) -> Judged:
    """All verdicts on one claim."""
    this_run = reference = model = None
    for check in claim.checks:
        checker = checkers.CHECKERS[check.checker]
        if check.evidence == "model":
            model = checker(claim, evidence, **check.options)
        elif check.evidence == "measured":
            this_run = checker(claim, evidence, recorded=False, **check.options)
            if evidence.recorded is not None:
                found = checker(claim, evidence, recorded=True, **check.options)
                reference = None if found.status is Status.NOT_EVALUATED else found
        else:
            this_run = checker(claim, evidence, **check.options)
    if claim.kind == "simulation" and model is not None:
        this_run, model = model, None
    return Judged(claim=claim, this_run=this_run or not_evaluated("not built yet"), reference=reference, model=model)


def judge_all(evidence: Evidence, path: Path = FILE) -> list[Judged]:
    """Every claim, in the file's order."""
    return [judge(claim, evidence) for claim in load(path).claims]


def as_rows(judged: list[Judged]) -> list[dict[str, Any]]:
    """Plain data for claims.json: what tables, report and README render."""
    return [
        {
            "id": j.claim.id,
            "title": j.claim.title,
            "paper": [str(n) for n in j.claim.paper],
            "this_run": j.this_run.as_dict(),
            "reference": j.reference.as_dict() if j.reference else None,
            "model": j.model.as_dict() if j.model else None,
            "target": j.claim.target,
            "command": j.claim.command,
        }
        for j in judged
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """The count of verdicts of this run, and of the model where this run has none, in one line each."""
    counts = Counter(row["this_run"]["status"] for row in rows)
    listed = ", ".join(f"{counts[s]} {s}" for s in Status if counts[s])
    lines = [f"claims: {listed}"]
    open_claims = [row for row in rows if row["this_run"]["status"] == Status.NOT_EVALUATED]
    for place in ("reference", "model"):
        others = Counter(row[place]["status"] for row in open_claims if row[place])
        if others:
            label = {"reference": "recorded measurements", "model": "timing model"}[place]
            lines.append(
                f"of the {len(open_claims)} not evaluated, {label}: "
                + ", ".join(f"{others[s]} {s}" for s in Status if others[s])
            )
    return "\n".join(lines)


def strict(path: Path) -> list[str]:
    """Lines about claims in a claims.json that the evidence of the run contradicts; empty when none."""
    return [
        f"{row['id']} {row['title']}: {row['this_run']['status']}: {row['this_run']['detail']}"
        for row in read_json(path)
        if row["this_run"]["status"] in STRICT
    ]

"""Claims as Markdown: the verdicts of a run, and the parts of README and appendix that are generated from claims.yaml."""

from pathlib import Path
from typing import Any

from . import claims
from .errors import ArtifactError

BEGIN, END = "<!-- generated: {name} -->", "<!-- end of generated: {name} -->"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(
        [
            *lines,
            *("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows),
        ]
    )


def _verdict(verdict: dict[str, str] | None) -> str:
    return "" if verdict is None else f"**{verdict['status']}**: {verdict['detail']}"


def verdicts_markdown(rows: list[dict[str, Any]], backend: str) -> str:
    """claims.md: every claim with the paper's numbers (and how well each is known) and all verdicts."""
    table = _table(
        ["claim", "paper [confidence]", "this run", "recorded measurements", "timing model"],
        [
            [
                f"{r['id']} {r['title']}",
                "; ".join(r["paper"]),
                _verdict(r["this_run"]),
                _verdict(r["reference"]),
                _verdict(r["model"]),
            ]
            for r in rows
        ],
    )
    return f"# Claims, judged on backend {backend}\n\n{claims.summary(rows)}\n\n{table}\n\n{not_attempted()}\n"


def not_attempted() -> str:
    """What of the paper is left out, and why."""
    return "Not attempted:\n\n" + _table(["what", "why"], [[n.what, n.reason] for n in claims.load().not_attempted])


def _minutes(value: float) -> str:
    return f"{value:g} min"


def claims_table() -> str:
    """README: claim, paper, how it is judged, command, needs, time. No verdicts: those belong to a run."""
    rows = []
    for claim in claims.load().claims:
        judged = ", ".join(
            dict.fromkeys(
                {"measured": "GPUs", "verified": "emulator or GPUs", "build": "compiler", "model": "timing model"}[
                    c.evidence
                ]
                for c in claim.checks
            )
        )
        time = f"{_minutes(claim.time.human_min)} + {_minutes(claim.time.compute_min)}"
        rows.append(
            [
                claim.id,
                claim.title,
                "; ".join(str(n) for n in claim.paper),
                judged,
                f"`{claim.command}`",
                claim.needs,
                time,
            ]
        )
    return _table(["id", "claim", "paper [confidence]", "judged by", "command", "needs", "human + machine"], rows)


def experiments() -> str:
    """Appendix: one block a claim, in the form of a main result and its experiment."""
    blocks = []
    for c in claims.load().claims:
        tolerance = ", ".join(f"{k} {v:g}" for k, v in c.tolerance.items()) or "none: right or wrong"
        blocks.append(
            f"### {c.id}: {c.title}\n\n{c.statement}\n\n"
            f"* Paper: {'; '.join(str(n) for n in c.paper)}; on {c.platform}.\n"
            f"* Experiment: {c.experiment}.\n"
            f"* Varied: {c.independent}. Observed: {c.dependent}.\n"
            f"* Command: `{c.command}`, then `snakemake claims`. Needs: {c.needs}. Time: {_minutes(c.time.human_min)} of a person,"
            f" {_minutes(c.time.compute_min)} of the machine; {c.time.disk_mb:g} MB.\n"
            f"* Expected: {c.expected}. Tolerance: {tolerance}.\n"
            f"* Not covered: {c.not_covered}."
        )
    return "\n\n".join(blocks)


GENERATED = {"claims": claims_table, "experiments": experiments, "not attempted": not_attempted}


def fill(text: str, name: str) -> str:
    """`text` with every generated part made anew. Raises `ArtifactError` when a part has no end, or none is there."""
    found = False
    for part, make in GENERATED.items():
        begin, end = BEGIN.format(name=part), END.format(name=part)
        if begin not in text:
            continue
        if end not in text:
            raise ArtifactError(f"{name}: {begin} has no {end}")
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{make()}\n\n{end}{rest.partition(end)[2]}"
        found = True
    if not found:
        raise ArtifactError(f"{name} has no generated part; allowed: {', '.join(GENERATED)}")
    return text


def documents(root: Path) -> list[Path]:
    """Files with generated parts."""
    return [
        root / "README.md",
        root / "artifact" / "appendix" / "AD.md",
        root / "artifact" / "appendix" / "AE.md",
        root / "artifact" / "appendix" / "LIMITATIONS.md",
    ]

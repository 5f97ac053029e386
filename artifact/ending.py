"""The last lines of a run: which backend ran, the verdicts, what was not evaluated, and where the report is."""

from collections import Counter
from pathlib import Path

from . import claims
from .errors import ArtifactError
from .files import read_json
from .verdicts import Status


def last_lines(run: Path, backend: str, report: Path) -> str:
    """Text for the end of a run whose results lie in `run`; without verdicts it says only which backend ran."""
    lines = ["", f"backend: {backend}"]
    path = run / "claims.json"
    try:
        rows = read_json(path)
    except ArtifactError:
        return "\n".join([*lines, "claims: not judged by this target; run: snakemake claims"])
    lines.append(claims.summary(rows))
    open_claims = [r for r in rows if r["this_run"]["status"] == Status.NOT_EVALUATED]
    reasons = Counter(r["this_run"]["detail"] for r in open_claims)
    lines.append(
        f"not evaluated on this backend: {len(open_claims)} of {len(rows)}"
        + (f" ({'; '.join(f'{n}: {r}' for r, n in reasons.items())})" if reasons else "")
    )
    lines.append(f"verdicts: {path.with_suffix('.md')}; report: {report}")
    return "\n".join(lines)

"""The last lines of a run: which backend ran, the verdicts, what was not evaluated, and where the report is."""

import subprocess
import sys
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
    where = str(report) if report.exists() else "none yet, `snakemake all` makes it"
    lines.append(f"verdicts: {path.with_suffix('.md')}; report: {where}")
    return "\n".join(lines)


def make_report(run: Path, report: Path) -> str:
    """Make the offline HTML report when all of its parts are there and newer than it; "" or, in one line, why it could not be made.

    Called when a run has succeeded: a rule could not, since the report describes the whole run.
    """
    last = run / "notebook.html"  # made from everything else, and only by `all`
    if not last.exists() or (
        report.exists() and report.stat().st_mtime >= max(p.stat().st_mtime for p in run.rglob("*") if p.is_file())
    ):
        return ""
    command = [sys.executable, "-m", "snakemake", "--report", str(report), "--nolock", "--quiet", "all", "--", "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        ""
        if done.returncode == 0
        else f"report was not made: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    )

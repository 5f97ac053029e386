"""Kernels broken on purpose: for each kind of mistake, how many mutants each part of the adversary catches, and the seeds it takes.

`races` is the whole adversary and decides; `sc` (sequential consistency), `late` stores, `stale` loads and `weak` (both, nobody
looks for races) are controls with fewer seeds. Mutants that no subject executes are not counted.
"""

import pandas as pd

from .inputs import Inputs

CONTROLS = ("sc", "late", "stale", "weak")


def rows(inputs: Inputs) -> pd.DataFrame:
    found = inputs.frame("mutants", "campaign")
    found = found[found["kernel"] != "none"]
    found = found.assign(mistake=found["mutant"].str.partition("@")[0].str.rpartition(".")[2].str.replace("_", " "))
    made = []
    for mistake, part in found.groupby("mistake", sort=True):
        judged = part[part["detector"] == "races"]
        caught = judged[judged["verdict"] == "caught"]
        row = {
            "mistake": mistake,
            "programs": part["kernel"].nunique(),
            "mutants": len(judged),
            **{verdict: int((judged["verdict"] == verdict).sum()) for verdict in ("caught", "equivalent", "clean", "survived")},
            "most_schedules": int(judged["seeds_tried"].max()),
            "most_schedules_to_catch": int(caught["seeds_tried"].max()) if len(caught) else pd.NA,
            "time_s": round(float(part["time_s"].sum()), 1),
        }  # fmt: skip
        for control in CONTROLS:
            verdicts = part[part["detector"] == control]["verdict"]
            row[f"caught_{control}"] = f"{(verdicts == 'caught').sum()} of {len(verdicts)}" if len(verdicts) else ""
        made.append(row)
    return pd.DataFrame(made)

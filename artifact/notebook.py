# %% [markdown]
# # One claim of each kind
#
# A walk through this artifact: the kernel (what it is, and that it is right), a broken kernel caught in a replayed schedule, the measured
# data, and the timing model. Executed by `snakemake notebook`; run it yourself with `jupyter lab` from the repository's root.

# %%
import json
import os
from pathlib import Path

import pandas as pd
from IPython.display import SVG, Code, Markdown, display

import emulator
from artifact import catalogue, claims, compare, manifest, results

ROOT = Path.cwd()
RUN = ROOT / os.environ.get("FUSEDCC_RUN", "results/emulator")
PROGRAM = f"{ROOT / 'artifact' / 'notebook_programs.py'}::gemv"

# %% [markdown]
# ## The kernel: a functional claim (P6, P8)
#
# GEMV + AllReduce is one persistent kernel. Each work-group computes a tile of the partial result, sends it to the rank that owns it, and raises
# a flag; owners wait, add, and send the sum to all. This is its device code, the only copy there is:

# %%
display(Code((ROOT / "kernels" / "gemv_device.py").read_text(), language="python"))

# %% [markdown]
# Two ranks run it here, each an operating-system process with a symmetric heap of its own. The largest error of each rank against a float64 reference:

# %%
emulator.run(PROGRAM, 2, seed=1)

# %% [markdown]
# ## A broken kernel: the emulator bites
#
# The same source with its `wait` taken out. One seed gives one schedule; the replay says which access is not ordered with which, and why.

# %%
try:
    emulator.run(PROGRAM, 2, args=("drop_wait",), mode="replay", seed=1)
except emulator.EmulatorError as found:
    report = str(found)
else:
    raise SystemExit("the broken kernel was not caught")
print(report)

# %% [markdown]
# The same seed again gives the same report, on any machine:

# %%
try:
    emulator.run(PROGRAM, 2, args=("drop_wait",), mode="replay", seed=1)
except emulator.EmulatorError as again:
    print("same report:", str(again) == report)

# %% [markdown]
# And the whole kernel, under the same adversary:

# %%
emulator.run(PROGRAM, 2, mode="replay", seed=1)

# %% [markdown]
# ## Measured data: a performance claim (P3)
#
# Raw samples of every arm, recorded on a named machine; medians with 95 % rank intervals. Without two GPUs in the record there is no fused arm
# to compare, and the claim stays open.

# %%
recorded = manifest.check("auto", ROOT)
if recorded:
    rows = results.read(ROOT / next(p for p in recorded if p.stem == "gemv_all_reduce"), "timing")
    display(
        compare.medians(rows)[
            ["machine", "case", "strategy", "arm", "time_us", "low_us", "high_us", "samples", "limit_us"]
        ].head(20)
    )
    pairs = compare.pairs(rows, "gemv_all_reduce", vendor=True)
    display(Markdown(f"{len(pairs)} cases have a fused and a vendor arm."))
else:
    display(Markdown("No recorded measurements in `experiments/reference/`."))

# %% [markdown]
# ## The timing model: a simulated claim (P7)

# %%
traffic = results.read(ROOT / "results" / "model" / "traffic.csv", "traffic")
peaks = traffic.groupby(["machine", "case", "strategy"])["link_gbps"].max().unstack()
display(peaks.round(1))

# %%
drawn = RUN / "figures" / "fig_link_traffic.svg"
display(SVG(str(drawn)) if drawn.exists() else Markdown("Draw it with `snakemake fig_link_traffic`."))

# %% [markdown]
# ## All verdicts of this run

# %%
verdicts = json.loads((RUN / "claims.json").read_text())
display(
    pd.DataFrame(
        [
            {
                "claim": f"{row['id']} {row['title']}",
                "paper": "; ".join(row["paper"]),
                "this run": row["this_run"]["status"],
                "why": row["this_run"]["detail"],
                "model": (row["model"] or {}).get("status", ""),
            }
            for row in verdicts
        ]
    ).style.hide(axis="index")
)
print(claims.summary(verdicts))
print(f"{len(catalogue.FIGURES)} figures and {len(catalogue.TABLES)} tables: results/report.html")

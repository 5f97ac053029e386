# What all rules share: the checked configuration, the backend of this run, and where data lie. The only file with functions.
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir)))

from artifact import __version__ as VERSION
from artifact import catalogue, config_model, ending, hardware, manifest
from artifact.errors import ArtifactError
from artifact.sources import closure

try:
    CONFIG = config_model.parse(config)
    BACKEND = hardware.resolve(CONFIG.backend, CONFIG.cluster)
    REFERENCE = manifest.check(CONFIG.reference)
except ArtifactError as error:
    raise SystemExit(f"error: {error}")

# A prefix takes the place of Snakemake's own, which has a rule fail when its command fails, whatever tee says.
# `python` in a rule is the one that runs Snakemake, also where no environment is activated; with --sdm conda it is conda's.
if not workflow.deployment_settings.deployment_method:
    shell.prefix(f'set -euo pipefail; export PATH="{Path(sys.executable).parent}:$PATH"; ')
MACHINE = CONFIG.gpu.machine if BACKEND == "gpu" else "cpu"
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")
MODEL_STEPS = {
    "intranode": (
        "intranode",
        "reduction",
        "sensitivity",
        "skew",
        "occupancy",
        "traffic",
        "assumptions",
        "machine_profiles",
    ),
    "scaleout": (
        "scaleout",
        "scaleout_reduction",
        "scaleout_sweep",
        "simulation_setup",
    ),
    "validate": ("validation", "validation_constants", "validation_summary"),
}
RUN = f"results/{BACKEND}"
FIGURES = catalogue.existing("figures", catalogue.FIGURES)
TABLES = catalogue.existing("paper_tables", catalogue.TABLES)


wildcard_constraints:
    scope="smoke|sample|full",
    operator="|".join(OPERATORS),


def model_file(name):
    """Path of a file of the timing model."""
    return f"results/model/{name}.csv"


def timing_files():
    """Timing rows that figures show: measured in this run, or recorded where there are no GPUs."""
    if BACKEND == "gpu":
        return [f"results/gpu/timing/{operator}.csv" for operator in OPERATORS]
    return [str(path) for path in REFERENCE]


def data(need):
    """Files of one need of a figure or table, as `catalogue` names it."""
    scope = CONFIG.scope
    return {
        "timing": timing_files(),
        "verify": [f"{RUN}/verify/{scope}.csv"],
        "resources": ["results/build/resources.csv"],
        "operators": ["results/build/operators.csv"],
        "mutants": [f"results/emulator/mutants/{scope}.csv"],
        "claims": [f"{RUN}/claims.json"],
        "paper": ["artifact/claims.yaml"],
        "hardware": [f"{RUN}/hardware.json"],
        "cases": [f"experiments/cases/{operator}.csv" for operator in OPERATORS],
        "benchmarks": [f"{RUN}/claims.json"],
    }.get(need) or ([] if need == "timing" else [model_file(need)])


def needs(item):
    """All data files of a figure or table."""
    return sorted({path for need in item.needs for path in data(need)})


def options(item):
    """Command-line options that hand a figure or table its data."""
    known = {
        "timing": "--timing",
        "verify": "--verify",
        "resources": "--resources",
        "operators": "--operators",
        "mutants": "--mutants",
        "claims": "--claims",
        "hardware": "--hardware",
    }
    found = []
    for need in item.needs:
        if need in known:
            found += [known[need], *data(need)] if data(need) else []
        elif need == "benchmarks":
            found += ["--benchmarks", "results/benchmarks"]
        elif need not in ("cases", "paper"):
            found += ["--model", "results/model"] if "--model" not in found else []
    return found


def output_folder(wildcards, output):
    """Folder of a job's first output."""
    return str(Path(output[0]).parent)


def run_folder(wildcards, input):
    """Folder of the run whose verdicts a job reads."""
    return str(Path(input.claims).parent)


def selection(wildcards):
    """Options of the verification for a scope."""
    return {"smoke": "--sample --world 2", "sample": "--sample", "full": "--full"}[wildcards.scope]


def mutant_selection(wildcards):
    """Options of the mutant campaign for a scope."""
    return "--full" if wildcards.scope == "full" else "--sample"


def backend_name(wildcards):
    """The backend of this run (a function, since the linter takes the word "emulator" for a path)."""
    return BACKEND

"""Figures and tables by name: what each needs, and the words that stand under it in the report. No drawing here, no imports of it."""

from dataclasses import dataclass
from pathlib import Path

from .files import ROOT


@dataclass(frozen=True)
class Item:
    """A figure or a table.

    Attributes:
        needs: what it is made from: names of model files, or timing, verify, resources, operators, mutants, claims (the verdicts),
            paper (the paper's numbers), hardware, cases, benchmarks.
        claims: ids of the claims that it serves; empty for context.
        caption: one or two sentences.
        context: where the report puts an item that serves no claim.
    """

    needs: tuple[str, ...]
    claims: tuple[str, ...]
    caption: str
    context: str = "Setting"

    @property
    def group(self) -> str:
        """Where the report puts it: under the claims it serves, or its context. The report sorts by letters; padded, P10 comes last."""
        return f"Claim {', '.join(f'{c:>3}' for c in self.claims)}" if self.claims else self.context


_OPERATOR = (
    "Measured times of the fused operator, of its compute kernel alone and of every kind of baseline, relative to what the machine could do, case by case; "
    "a case without a result says so."
)
FIGURES = {
    "fig_gemv_all_reduce": Item(("timing",), ("P3",), "GEMV + AllReduce. " + _OPERATOR),
    "fig_embedding_all_to_all": Item(("timing",), ("P1", "P2"), "Embedding + All-to-All. " + _OPERATOR),
    "fig_gemm_all_to_all": Item(("timing",), ("P4",), "GEMM + All-to-All. " + _OPERATOR),
    "fig_scale_out": Item(
        ("scaleout", "scaleout_reduction", "paper"),
        ("P5",),
        "DLRM training in simulation: percent lower iteration time of fused against bulk.",
    ),
    "fig_model_validation": Item(
        ("validation", "validation_summary"),
        (),
        "The timing model's predictions against recorded measurements; fitted on one half of the cases, judged on the other.",
    ),
    "fig_intranode_model": Item(
        ("reduction", "paper"), ("P1",), "Fused against bulk on every machine profile, by the timing model."
    ),
    "fig_internode_model": Item(
        ("reduction", "paper"), ("P2",), "Fused against bulk between two nodes, by the timing model."
    ),
    "fig_workload_sweep": Item(
        ("scaleout_sweep",),
        ("P5",),
        "For which workloads the simulated reduction holds: pooling and MLP width around the main one.",
    ),
    "fig_scale_out_faults": Item(
        ("scaleout_reduction",),
        ("P5",),
        "DLRM training in simulation on other topologies, with a slow node and with a weak link.",
    ),
    "fig_destination_order": Item(
        ("assumptions",),
        ("P1", "P4"),
        "Fused against bulk when work-groups serve one destination after the other or all in turn, by the timing model.",
    ),
    "fig_strategies": Item(
        ("intranode",), (), "Ways to overlap a dependent collective, by the timing model: time relative to bulk."
    ),
    "fig_link_traffic": Item(
        ("traffic",),
        ("P7",),
        "Traffic that a rank puts on its links over time, by the timing model: fused spreads it, bulk sends at the end.",
    ),
    "fig_order_skew": Item(
        ("skew",),
        ("P9",),
        "Skew between the ends of the ranks' kernels under remote-first and oblivious order, by the timing model.",
    ),
    "fig_occupancy": Item(("occupancy",), ("P10",), "Time against occupancy, by the timing model."),
}
TABLES = {
    "table_claims": Item(
        ("claims",),
        (),
        "Every claim of the paper with its number, how well that is known, and the verdicts.",
        "All claims",
    ),
    "table_verification": Item(
        ("verify", "operators"),
        ("P6", "P8"),
        "Correctness cases by operator, transport, dtype and world size, with errors against their bounds.",
    ),
    "table_kernel_resources": Item(
        ("resources",),
        ("P10",),
        "Registers, spills, shared memory and theoretical occupancy of every kernel, fused against compute only.",
    ),
    "table_mutants": Item(
        ("mutants",), ("P6",), "Kernels broken on purpose, and which report of the emulator catches each."
    ),
    "table_strategies": Item(("intranode",), (), "Ways to overlap a dependent collective, by the timing model."),
    "table_system": Item(("hardware", "machine_profiles"), (), "The paper's machine, the recorded one, and this one."),
    "table_workloads": Item(("cases",), (), "Shapes that are timed and where they come from."),
    "table_simulation_setup": Item(("simulation_setup",), ("P5",), "Everything that the simulation assumes, and why."),
    "table_time": Item(
        ("benchmarks",), (), "Wall time and peak memory of every step on this machine, beside the documented time."
    ),
}


def existing(package: str, items: dict[str, Item], root: Path = ROOT) -> dict[str, Item]:
    """The items whose module is there."""
    return {name: item for name, item in items.items() if (root / package / f"{name.partition('_')[2]}.py").is_file()}

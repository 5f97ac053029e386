"""Synthetic result rows for the tests of this room."""

import numpy as np
import pandas as pd

ARMS = (
    ("fused.one_shot", "fused", "out"),
    ("fused.owned", "fused", "owned"),
    ("own", "compute", "none"),
    ("linear+nccl", "bulk", "none"),
    ("own+push", "push", "none"),
)


def timing(
    ratios: dict[str, float],
    operator: str = "gemv_all_reduce",
    machine: str = "h200-x2",
    samples: int = 30,
    noise: float = 0.01,
) -> pd.DataFrame:
    """Timing rows: one case a key, whose fused arm takes that part of the vendor baseline's time."""
    rng = np.random.default_rng(0)
    rows = []
    for case, ratio in ratios.items():
        for arm, strategy, face in ARMS:
            factor = {"fused": ratio, "compute": 0.6, "push": 0.97}.get(strategy, 1.0) * (
                1.1 if face == "owned" else 1.0
            )
            for sample in range(samples):
                rows.append(
                    {
                        "operator": operator, "case": case, "arm": arm, "strategy": strategy, "face": face, "mode": "graph", "backend": "gpu",
                        "machine": machine, "world_size": 2, "dtype": "bfloat16", "sample": sample, "time_us": 50 * factor * rng.normal(1, noise),
                        "limit_us": 25.0, "bytes_read": 1e6, "bytes_sent": 1e3, "flops": 1e6, "status": "ok", "reason": "",
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def verify(operators: list[str], status: str = "ok", stores: int = 5, transport: str = "peer") -> pd.DataFrame:
    """Verification rows of two ranks and one case an operator."""
    return pd.DataFrame(
        [
            {
                "operator": operator, "case": "c", "strategy": "fused.peer", "transport": transport, "dtype": "float32", "world_size": 2, "call": 0, "seed": 1,
                "rank": rank, "max_abs_error": 0.0, "bound": 1.0, "remote_stores": stores, "flags_delivered": 1, "status": status, "reason": "",
            }
            for operator in operators
            for rank in (0, 1)
        ]
    )  # fmt: skip


def resources(occupancies: dict[str, tuple[float, float]], target: str = "gfx90a", status: str = "ok") -> pd.DataFrame:
    """Build rows: operator to (compute-only, fused) occupancy as shares."""
    return pd.DataFrame(
        [
            {
                "kernel": f"{operator}.{role}", "operator": operator, "role": role, "dtype": "float32", "target": target, "num_warps": 4, "registers": 64,
                "agprs": 0, "sgprs": 0, "spills": 0, "shared_bytes": 0, "stack_bytes": 0, "occupancy": value, "limited_by": "registers", "status": status,
                "reason": "", "triton_version": "3.7.1",
            }
            for operator, both in occupancies.items()
            for role, value in zip(("compute", "fused"), both, strict=True)
        ]
    )  # fmt: skip


def reduction(percents: list[float], operator: str, machine: str, band: float = 3.0) -> pd.DataFrame:
    """Rows of the model's reductions."""
    return pd.DataFrame(
        [
            {
                "operator": operator, "case": f"c{i}", "machine": machine, "backend": "model", "world_size": 4, "bulk_us": 100.0, "fused_us": 100.0 - p,
                "reduction_percent": p, "low_percent": p - band, "high_percent": p + band,
            }
            for i, p in enumerate(percents)
        ]
    )  # fmt: skip

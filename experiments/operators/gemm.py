"""GEMM + All-to-All as the experiments see it."""

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..cases import Case
from . import Expected, Operands, generator


def row_counts(case: Case, rows: int, world_size: int) -> np.ndarray:
    """int32 [source rank, expert, destination]: how many rows each expert of each rank has for whom; the case decides.

    Splits: "even"; "uneven" (random, far from even); "empty" (as uneven, and destination 0 gets nothing from rank 0);
    "one" (all rows of a rank belong to its last expert and go to the next rank).
    """
    experts = case["experts"]
    counts = np.zeros((world_size, experts, world_size), np.int32)
    rng = np.random.default_rng(zlib.crc32(case["case"].encode()) + rows)
    for source in range(world_size):
        flat = counts[source].reshape(-1)
        if case["split"] == "even":
            flat[:] = rows // flat.size + (np.arange(flat.size) < rows % flat.size)
        elif case["split"] == "one":
            counts[source, -1, (source + 1) % world_size] = rows
        else:
            weights = rng.dirichlet(np.full(flat.size, 2.0)).reshape(experts, world_size)
            if case["split"] == "empty" and source == 0 and world_size > 1:
                weights[:, 0] = 0
            flat[:] = rng.multinomial(rows, (weights / weights.sum()).reshape(-1))
    return counts


class Gemm:
    """Adapter of `kernels.gemm_all_to_all`; rank p ends with the rows for it, ordered by (source rank, expert)."""

    name = "gemm_all_to_all"
    same_on_all_ranks = False
    device_modules: tuple[str, ...] = ("kernels.gemm_device", "kernels.gemm_rdma_device")

    def problem(self, case: Case, world_size: int, call: int = 0) -> Any:
        from kernels.gemm_all_to_all import Problem

        rows, n, k = case["m"], case["n"], case["k"]
        if case.get("changing") and call % 3:
            rows, n, k = (max(1, rows // 2), n, k + 8) if call % 3 == 1 else (rows + 3, n + 8, max(1, k // 2))
        received = int(row_counts(case, rows, world_size).sum((0, 1)).max())
        dtype = getattr(torch, case["dtype"])
        return Problem(rows, max(1, received), n, k, case["experts"], dtype, world_size, bool(case.get("scaled")))

    def labels(self, case: Case) -> tuple[str, str]:
        return f"fused.{case['transport']}", case["transport"]

    def operands(self, problem: Any, case: Case, rank: int, seed: int, device: torch.device) -> Operands:
        from kernels.gemm_all_to_all import Experts, destination_offsets

        g = generator(seed, rank, device)

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=g, device=device)

        counts = torch.from_numpy(row_counts(case, problem.rows, problem.world_size)).to(device)
        weight = torch.empty(problem.experts, problem.n, problem.k, dtype=problem.dtype, device=device)
        for expert in weight:
            expert.copy_(draw(problem.n, problem.k))
        return {
            "experts": Experts(
                x=draw(problem.rows, problem.k).to(problem.dtype),
                weight=weight,
                counts=counts[rank].contiguous(),
                dst_offsets=destination_offsets(counts, rank).contiguous(),
                scale=draw(problem.rows) if problem.scaled else None,
            )
        }

    def counts(self, problem: Any, case: Case) -> dict[str, int]:
        rows = row_counts(case, problem.rows, problem.world_size)
        remote = max(int(rows[r].sum() - rows[r][:, r].sum()) for r in range(problem.world_size))
        size = problem.dtype.itemsize
        read = (problem.rows + problem.experts * problem.n) * problem.k * size
        flops = 2 * problem.rows * problem.n * problem.k
        return {"bytes_read": read, "bytes_sent": remote * problem.n * size, "flops": flops}

    def out_shape(self, problem: Any, rank: int) -> tuple[int, ...]:
        return (problem.rows_out, problem.n)

    def config(self, symm: Any, problem: Any, case: Case) -> Any:
        from kernels.gemm_all_to_all import default_config

        return replace(
            default_config(problem, symm),
            transport=case["transport"],
            fenced=bool(case.get("fenced")),
            order=case.get("order", "remote_first"),
        )

    def run(self, symm: Any, problem: Any, case: Case, operands: Operands, out: torch.Tensor) -> torch.Tensor:
        from kernels.gemm_all_to_all import fused

        return fused(symm, problem, operands["experts"], out, self.config(symm, problem, case))

    def expected(
        self, problem: Any, case: Case, rank: int, seed: int, device: torch.device, partial: bool = False
    ) -> Expected:
        from kernels.gemm_all_to_all import error_bound

        counts = row_counts(case, problem.rows, problem.world_size)
        blocks = []
        for source in [rank] if partial else range(problem.world_size):
            experts = self.operands(problem, case, source, seed, device)["experts"]
            # x is sorted by (expert, destination); results by (source, expert), partial ones by (destination, expert).
            ends = counts[source].reshape(-1).cumsum().reshape(counts[source].shape)
            for dest in range(problem.world_size) if partial else [rank]:
                for expert in range(problem.experts):
                    span = slice(int(ends[expert, dest] - counts[source, expert, dest]), int(ends[expert, dest]))
                    blocks.append(_product(experts, expert, span))
        exact, magnitude = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return Expected(exact, error_bound(problem, exact, magnitude), magnitude)


def _product(experts: Any, expert: int, span: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows `span` times the expert's weight, sum of absolute values of the terms), float64."""
    x, w = experts.x[span].double(), experts.weight[expert].double()
    exact, magnitude = x @ w.T, x.abs() @ w.abs().T
    if experts.scale is not None:
        factor = experts.scale[span].double()[:, None]
        exact, magnitude = exact * factor, magnitude * factor.abs()
    return exact, magnitude

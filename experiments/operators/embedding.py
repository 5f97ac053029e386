"""Embedding + All-to-All as the experiments see it."""

from dataclasses import replace
from typing import Any

import torch

from ..cases import Case
from . import Expected, Operands, generator


class Embedding:
    """Adapter of `kernels.embedding_all_to_all`; every rank ends with its own part of the batch."""

    name = "embedding_all_to_all"
    same_on_all_ranks = False
    device_modules: tuple[str, ...] = ("kernels.embedding_device", "kernels.embedding_rdma_device")

    def problem(self, case: Case, world_size: int, call: int = 0) -> Any:
        from kernels.embedding_all_to_all import Problem

        batch, tables = case["global_batch"], case["tables"]
        if case.get("changing") and call % 3 == 1:
            batch = max(1, batch // 2) + 1
        if case.get("changing") and call % 3 == 2:
            tables = tuple(tables + rank % 2 for rank in range(world_size))
        return Problem(
            batch, tables, case["dim"], getattr(torch, case["dtype"]), world_size, case.get("mode", "sum"),
            bool(case.get("weighted")), getattr(torch, case.get("index_dtype", "int32")),
        )  # fmt: skip

    def labels(self, case: Case) -> tuple[str, str]:
        return f"fused.{case['transport']}", case["transport"]

    def operands(self, problem: Any, case: Case, rank: int, seed: int, device: torch.device) -> Operands:
        from kernels.embedding_all_to_all import Tables

        g = generator(seed, rank, device)
        tables, bags = problem.tables[rank], problem.tables[rank] * problem.batch
        # Tables of different heights in correctness cases, where rows are few.
        rows = [case["rows"] + (3 * t if "transport" in case else 0) for t in range(tables)]
        starts = torch.tensor([0, *rows[:-1]], device=device).cumsum(0)
        heights = torch.tensor(rows, device=device)
        weight = torch.empty(sum(rows), problem.dim, dtype=problem.dtype, device=device)
        for part in weight.split(max(1, 2**26 // problem.dim)):
            part.copy_(torch.randn(part.shape, generator=g, device=device))
        if case["bags"] == "fixed":
            lengths = torch.full((bags,), case["pooling"], device=device)
        else:
            lengths = torch.randint(0, 2 * case["pooling"] + 1, (bags,), generator=g, device=device)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), lengths.cumsum(0)])
        total = int(offsets[-1])
        table_of = torch.arange(tables, device=device).repeat_interleave(problem.batch).repeat_interleave(lengths)
        uniform = torch.rand(total, generator=g, device=device, dtype=torch.float64)
        indices = (uniform * heights[table_of]).to(problem.index_dtype)
        weights = torch.randn(total, generator=g, device=device) if problem.weighted else None
        return {"tables": Tables(weight, starts, indices, offsets.to(problem.index_dtype), weights)}

    def counts(self, problem: Any, case: Case) -> dict[str, int]:
        tables = max(problem.tables)
        indices = tables * problem.batch * case["pooling"]  # of ragged bags the expected number
        remote = (
            problem.batch - min(problem.part(r)[1] for r in range(problem.world_size)) if problem.world_size > 1 else 0
        )
        row = problem.dim * problem.dtype.itemsize
        read = indices * (row + problem.index_dtype.itemsize)
        return {"bytes_read": read, "bytes_sent": remote * tables * row, "flops": indices * problem.dim}

    def out_shape(self, problem: Any, rank: int) -> tuple[int, ...]:
        return (problem.batch_max, problem.all_tables, problem.dim)

    def config(self, symm: Any, problem: Any, case: Case) -> Any:
        from kernels.embedding_all_to_all import default_config

        return replace(
            default_config(problem, symm),
            transport=case["transport"],
            fenced=bool(case.get("fenced")),
            order=case.get("order", "remote_first"),
        )

    def run(self, symm: Any, problem: Any, case: Case, operands: Operands, out: torch.Tensor) -> torch.Tensor:
        from kernels.embedding_all_to_all import fused

        fused(symm, problem, operands["tables"], out, self.config(symm, problem, case))
        return out

    def expected(
        self, problem: Any, case: Case, rank: int, seed: int, device: torch.device, partial: bool = False
    ) -> Expected:
        from kernels.embedding_all_to_all import error_bound

        first, bags = (0, problem.batch) if partial else problem.part(rank)
        owners = [rank] if partial else range(problem.world_size)
        shape = (bags, sum(problem.tables[o] for o in owners), problem.dim)
        exact = torch.zeros(shape, dtype=torch.float64, device=device)
        magnitude = torch.zeros_like(exact)
        place = longest = 0
        for owner in owners:
            tables = self.operands(problem, case, owner, seed, device)["tables"]
            for table in range(problem.tables[owner]):
                exact[:, place], magnitude[:, place], length = _pooled(problem, tables, table, first, bags)
                place, longest = place + 1, max(longest, length)
        return Expected(exact, error_bound(problem, exact, magnitude, longest), magnitude)


def _pooled(problem: Any, tables: Any, table: int, first: int, bags: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(pooled bags [first, first + bags) of one table, sum of absolute values, longest bag), float64 [bags, dim]."""
    low = table * problem.batch + first
    offsets = tables.offsets[low : low + bags + 1].long()
    lengths = offsets.diff()
    span = slice(int(offsets[0]), int(offsets[-1]))
    terms = tables.weight[tables.table_offsets[table] + tables.indices[span].long()].double()
    if tables.sample_weights is not None:
        terms = terms * tables.sample_weights[span].double()[:, None]
    bag_of = torch.arange(bags, device=terms.device).repeat_interleave(lengths)
    divisor = lengths.clamp_min(1).double()[:, None] if problem.pooling_mode == "mean" else 1.0
    zeros = torch.zeros(bags, problem.dim, dtype=torch.float64, device=terms.device)
    longest = int(lengths.max()) if bags else 0
    return zeros.index_add(0, bag_of, terms) / divisor, zeros.index_add(0, bag_of, terms.abs()) / divisor, longest

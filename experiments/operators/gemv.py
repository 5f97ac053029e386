"""GEMV + AllReduce as the experiments see it."""

from dataclasses import replace
from typing import Any

import torch

from ..cases import Case
from . import Expected, Operands, generator

_ROWS_AT_ONCE = 4096  # of a weight in float64, so that a reference of 0.5 GB of weights needs little memory


class Gemv:
    """Adapter of `kernels.gemv_all_reduce`; every rank ends with the same bits."""

    name = "gemv_all_reduce"
    same_on_all_ranks = True
    device_modules: tuple[str, ...] = ("kernels.gemv_device", "kernels.gemv_rdma_device")

    def problem(self, case: Case, world_size: int, call: int = 0) -> Any:
        from kernels.gemv_all_reduce import Problem

        m, k, batch = case["m"], case["k"], case["batch"]
        if case.get("changing") and call % 3:
            m, k, batch = (max(1, m // 2), k + 3, batch) if call % 3 == 1 else (m + 5, max(1, k // 2), batch % 8 + 1)
        dtype = getattr(torch, case["dtype"])
        return Problem(m, k, batch, dtype, world_size, bool(case.get("bias")), bool(case.get("residual")))

    def labels(self, case: Case) -> tuple[str, str]:
        return f"fused.{case['algorithm']}", case.get("transport", "peer")

    def operands(self, problem: Any, case: Case, rank: int, seed: int, device: torch.device) -> Operands:
        g = generator(seed, rank, device)

        def draw(*shape: int) -> torch.Tensor:
            # Drawn in float32 and rounded: the same values whatever the dtype.
            return torch.randn(*shape, generator=g, device=device).to(problem.dtype)

        found = {"weight": draw(problem.m, problem.k), "x": draw(problem.batch, problem.k)}
        g = generator(seed, 63, device)  # bias and residual are the same on every rank
        if problem.bias:
            found["bias"] = draw(problem.m)
        if problem.residual:
            found["residual"] = draw(problem.batch, problem.m)
        return found

    def counts(self, problem: Any, case: Case) -> dict[str, int]:
        vector = problem.batch * problem.m
        others = problem.world_size - 1
        # What must cross at least: partials to their owners, results back (two-phase); a direct exchange sends more.
        sent = vector * (4 + problem.dtype.itemsize) * others // problem.world_size
        read = (problem.m + problem.batch) * problem.k * problem.dtype.itemsize
        return {"bytes_read": read, "bytes_sent": sent, "flops": 2 * vector * problem.k}

    def out_shape(self, problem: Any, rank: int) -> tuple[int, ...]:
        return (problem.batch, problem.m)

    def config(self, symm: Any, problem: Any, case: Case) -> Any:
        from kernels.gemv_all_reduce import default_config

        return replace(
            default_config(problem, symm),
            algorithm=case["algorithm"],
            transport=case.get("transport", "peer"),
            fenced=bool(case.get("fenced")),
            order=case.get("order", "remote_first"),
        )

    def run(self, symm: Any, problem: Any, case: Case, operands: Operands, out: torch.Tensor) -> torch.Tensor:
        from kernels.gemv_all_reduce import fused

        return fused(symm, problem, **operands, out=out, config=self.config(symm, problem, case))

    def partial(self, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
        """(one rank's product, sum of absolute values of its terms), float64 [batch, m]."""
        x = operands["x"].double()
        parts = [(x @ w.double().T, x.abs() @ w.double().abs().T) for w in operands["weight"].split(_ROWS_AT_ONCE)]
        return torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)

    def expected(
        self, problem: Any, case: Case, rank: int, seed: int, device: torch.device, partial: bool = False
    ) -> Expected:
        from kernels.gemv_all_reduce import error_bound

        total = magnitude = torch.zeros((), dtype=torch.float64, device=device)
        operands: Operands = {}
        for peer in [rank] if partial else range(problem.world_size):
            operands = self.operands(problem, case, peer, seed, device)
            part, absolute = self.partial(operands)
            total, magnitude = total + part, magnitude + absolute
        for name in [] if partial else ["bias", "residual"]:
            if name in operands:
                total, magnitude = total + operands[name].double(), magnitude + operands[name].double().abs()
        summed = replace(problem, world_size=1) if partial else problem
        return Expected(total, error_bound(summed, total, magnitude), magnitude)

"""What the three example programs share: command line, process group, training steps, and fused compared with bulk."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import ProblemError, require, require_world_size


@dataclass(frozen=True)
class Example:
    """One program.

    Attributes:
        name: what the lines that it prints begin with.
        build: the model on a device, the same on every rank where it is replicated.
        step: model to (output, loss to differentiate, this rank's share of the printed loss).
        finish_gradients: what follows backward() before the optimizer steps, as adding replicated parameters' gradients.
        operations: float32 operations on the longest way from a parameter to its gradient, in the largest sums.
    """

    name: str
    build: Callable[[torch.device], nn.Module]
    step: Callable[[nn.Module], tuple[Tensor, Tensor, Tensor]]
    finish_gradients: Callable[[nn.Module], None]
    operations: Callable[[nn.Module], int]


def set_fused(model: nn.Module, fused: bool) -> None:
    """Switch every layer of `kernels.modules` in a model."""
    for layer in model.modules():
        if hasattr(layer, "fused"):
            layer.fused = fused


def _differentiate(example: Example, model: nn.Module, fused: bool) -> dict[str, Tensor]:
    """Output and gradients of one step, by name."""
    set_fused(model, fused)
    model.zero_grad()
    output, loss, _ = example.step(model)
    loss.backward()
    example.finish_gradients(model)
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"output": output.detach()} | grads


def check(example: Example, model: nn.Module) -> tuple[str, bool]:
    """(closing line, whether it holds): one step fused and one bulk, every output and gradient compared on every rank.

    Allowed, of the largest value of a tensor, for each of the two ways: lambda sqrt(n) u, which n roundings to float32 in a
    row exceed with a probability of at most 2 exp(-lambda^2 / 2) (Higham and Mary, "A New Approach to Probabilistic Rounding
    Error Analysis", 2019); n from `Example.operations`, lambda = 6.
    """
    ways = [_differentiate(example, model, fused) for fused in (True, False)]
    allowed = 2 * 6 * example.operations(model) ** 0.5 * 2.0**-24
    worst = {"output": 0.0, "gradients": 0.0}
    for name, fused in ways[0].items():
        kind = "output" if name == "output" else "gradients"
        scale = ways[1][name].abs().max().clamp(min=1e-30)
        difference = ((fused - ways[1][name]).abs().max() / scale).nan_to_num(nan=torch.inf)
        worst[kind] = max(worst[kind], difference.item())
    table = torch.tensor(list(worst.values()), device=ways[0]["output"].device)
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    output, gradients = table.tolist()
    right = max(output, gradients) <= allowed
    verdict = "fused equals bulk" if right else "FUSED DIFFERS FROM BULK"
    line = (
        f"{verdict}: output by {output:.1e}, {len(ways[0]) - 1} gradients by {gradients:.1e} "
        f"of the largest value; allowed {allowed:.1e}"
    )
    return line, right


def train(example: Example, model: nn.Module, fused: bool, steps: int) -> str:
    """Closing line after a few steps of gradient descent."""
    set_fused(model, fused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss, share = example.step(model)
        loss.backward()
        example.finish_gradients(model)
        optimizer.step()
        total = share.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    return f"{'fused' if fused else 'bulk'}: loss {losses[0]:.4f} -> {losses[-1]:.4f} in {steps} steps"


def _device() -> torch.device:
    """This process's GPU if every process of the machine has one, else the CPU."""
    local_rank, local_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() < local_ranks:
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def main(example: Example) -> int:
    """The program; its exit status: 0, 1 if fused and bulk differ, 2 for a mistake of its user."""
    module = f"{__package__}.{example.name}"
    parser = argparse.ArgumentParser(prog=f"torchrun --nproc-per-node N -m {module}")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--fused", action="store_true", help="train with the fused operators (the default)")
    way.add_argument("--bulk", action="store_true", help="train with library computation, then collective")
    way.add_argument("--check", action="store_true", help="compare both: outputs, and gradients of one training step")
    parser.add_argument("--steps", type=int, default=5, help="training steps (default 5)")
    options = parser.parse_args()
    try:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            number = os.environ.get(name)
            allowed = f"a number, which torchrun sets: torchrun --nproc-per-node 4 -m {module}"
            require(number is not None and number.isdigit(), name, number, allowed)
        require(options.steps >= 1, "--steps", options.steps, "1 or more")
        require_world_size(int(os.environ["WORLD_SIZE"]))
        device = _device()
        if device.type == "cpu":
            torch.set_num_threads(1)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, device_id=device if device.type == "cuda" else None)
        model = example.build(device)
        line, right = (
            check(example, model) if options.check else (train(example, model, not options.bulk, options.steps), True)
        )
        if dist.get_rank() == 0:
            print(f"{example.name}: {dist.get_world_size()} ranks ({device.type}, {backend}): {line}", flush=True)
        return 0 if right else 1
    except ProblemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()

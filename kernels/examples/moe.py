"""A mixture-of-experts block: every rank has tokens of its own and some of the experts.

    torchrun --nproc-per-node 4 -m kernels.examples.moe --check

Tokens travel to their experts by a library all-to-all; `ExpertCombine` multiplies by the experts' last matrix, weights by the
router's probability and sends each row home in one kernel (GEMM + All-to-All). How many rows go where only the device knows.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..differentiable import all_to_all
from ..errors import require
from ..modules import ExpertCombine
from .common import Example, main

HIDDEN, FEED_FORWARD, EXPERTS, CHOSEN, TOKENS = 32, 48, 8, 2, 6


class MoEBlock(nn.Module):
    """Norm, router, experts, residual: [tokens of this rank, hidden] to the same."""

    def __init__(self, hidden: int, feed_forward: int, experts: int, chosen: int, device: torch.device):
        super().__init__()
        self.ranks = dist.get_world_size()
        require(experts % self.ranks == 0, "experts", experts, f"a multiple of {self.ranks} ranks")
        self.group_name, self.local_experts, self.chosen = dist.group.WORLD.group_name, experts // self.ranks, chosen
        self.norm = nn.RMSNorm(hidden, device=device)
        self.router = nn.Linear(hidden, experts, bias=False, device=device)
        self.up = nn.Parameter(torch.randn(self.local_experts, feed_forward, hidden, device=device) * hidden**-0.5)
        self.combine = ExpertCombine(experts, feed_forward, hidden, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """No shape depends on the routing: each rank has room for the case that all tokens choose the same rank."""
        h = self.norm(x)
        gates, experts = self.router(h).softmax(1).topk(self.chosen, dim=1)
        by_expert = experts.flatten().argsort(stable=True)
        token, room = by_expert // self.chosen, by_expert.numel()
        rows = torch.cat([h[token], gates.flatten()[by_expert].unsqueeze(1)], dim=1)

        # To the experts: a block of `room` rows for each rank, its rows in front, sorted by expert.
        sizes = (
            F.one_hot(experts.flatten(), self.ranks * self.local_experts).sum(0).view(self.ranks, self.local_experts)
        )
        to = experts.flatten()[by_expert] // self.local_experts
        slot = to * room + torch.arange(room, device=x.device) - (sizes.sum(1).cumsum(0) - sizes.sum(1))[to]
        sent = torch.zeros(self.ranks * room, rows.shape[1], device=x.device).index_copy(0, slot, rows)
        arrived = all_to_all(sent, [room] * self.ranks, [room] * self.ranks, self.group_name)
        sizes = all_to_all(sizes, [1] * self.ranks, [1] * self.ranks, self.group_name)  # [from rank, expert]

        # Sort what arrived by (expert, rank it came from); empty slots last.
        ends = sizes.cumsum(1)
        place = torch.arange(room, device=x.device).expand(self.ranks, room).contiguous()
        expert = torch.searchsorted(ends, place, right=True)
        source = torch.arange(self.ranks, device=x.device).unsqueeze(1)
        order = (expert * self.ranks + source).flatten().argsort(stable=True)
        arrived, expert = arrived[order], expert.flatten()[order]
        up = arrived.new_zeros(len(order), self.up.shape[1])
        for number, weight in enumerate(self.up):
            up = up + torch.where((expert == number).unsqueeze(1), F.gelu(arrived[:, :-1] @ weight.T), 0)

        home = self.combine(up, sizes.T.to(torch.int32).contiguous(), arrived[:, -1].contiguous(), rows_out=room)
        return x.index_add(0, token, home)


def build(device: torch.device) -> MoEBlock:
    torch.manual_seed(0)  # norm and router alike on every rank
    model = MoEBlock(HIDDEN, FEED_FORWARD, EXPERTS, CHOSEN, device)
    torch.manual_seed(dist.get_rank())
    nn.init.normal_(model.up, std=HIDDEN**-0.5)
    nn.init.normal_(model.combine.weight, std=FEED_FORWARD**-0.5)
    return model


def step(model: MoEBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Learn to turn this rank's tokens around; the ranks' losses add up to the mean over all tokens."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(TOKENS, HIDDEN, generator=generator).to(model.up.device)
    output = model(x)
    loss = F.mse_loss(output, -x) / dist.get_world_size()
    return output, loss, loss


def finish_gradients(model: MoEBlock) -> None:
    """Add the replicated parts' gradients; the experts' own are complete."""
    for parameter in (*model.norm.parameters(), *model.router.parameters()):
        dist.all_reduce(parameter.grad)


def operations(model: MoEBlock) -> int:
    """Through router and both matrices of an expert, back, and the sum over all tokens."""
    return 2 * (2 * HIDDEN + EXPERTS + 2 * HIDDEN + 2 * FEED_FORWARD) + dist.get_world_size() * TOKENS


EXAMPLE = Example("moe", build, step, finish_gradients, operations)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))

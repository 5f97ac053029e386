"""A decoder block that generates token by token, its heads and its feed-forward features spread over the ranks.

    torchrun --nproc-per-node 4 -m kernels.examples.decoder --check

Both places where the ranks' partial results meet are `RowParallelLinear`: the attention's output and the feed-forward's
second matrix, each with the residual stream added in the same kernel (GEMV + AllReduce).
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..differentiable import copy_to_ranks
from ..errors import require
from ..modules import RowParallelLinear
from .common import Example, main

HIDDEN, HEADS, FEED_FORWARD = 64, 8, 256
BATCH, TOKENS = 2, 3


class DecoderBlock(nn.Module):
    """Pre-norm attention and feed-forward for one new token per sequence; every rank holds whole tokens, a part of the heads."""

    def __init__(self, hidden: int, heads: int, feed_forward: int, device: torch.device):
        super().__init__()
        ranks = dist.get_world_size()
        require(heads % ranks == 0, "heads", heads, f"a multiple of {ranks} ranks")
        self.heads, self.head = heads // ranks, hidden // heads
        self.group_name = dist.group.WORLD.group_name
        self.norm_attention = nn.RMSNorm(hidden, device=device)
        self.qkv = nn.Linear(hidden, 3 * hidden // ranks, bias=False, device=device)
        self.out = RowParallelLinear(hidden, hidden, device=device)
        self.norm_feed_forward = nn.RMSNorm(hidden, device=device)
        self.up = nn.Linear(hidden, feed_forward // ranks, device=device)
        self.down = RowParallelLinear(feed_forward, hidden, device=device)

    def forward(self, x: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x [batch, hidden]: the new token; cache: (keys, values) [batch, heads / ranks, 1, head] of each token so far."""
        h = copy_to_ranks(self.norm_attention(x), self.group_name)
        q, k, v = self.qkv(h).view(len(x), 3, self.heads, 1, self.head).unbind(1)
        cache.append((k, v))
        keys, values = (torch.cat(part, dim=2) for part in zip(*cache, strict=True))
        attended = F.scaled_dot_product_attention(q, keys, values).reshape(len(x), -1)
        x = self.out(attended, residual=x)
        h = copy_to_ranks(self.norm_feed_forward(x), self.group_name)
        return self.down(F.gelu(self.up(h)), residual=x)


def build(device: torch.device) -> DecoderBlock:
    torch.manual_seed(dist.get_rank())
    return DecoderBlock(HIDDEN, HEADS, FEED_FORWARD, device)


def step(model: DecoderBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Feed TOKENS tokens one by one; each output should be the next token. The same on every rank."""
    tokens = torch.randn(TOKENS + 1, BATCH, HIDDEN, generator=torch.Generator().manual_seed(0)).to(
        model.up.weight.device
    )
    cache: list[tuple[Tensor, Tensor]] = []
    outputs = torch.stack([model(token, cache) for token in tokens[:-1]])
    loss = F.mse_loss(outputs, tokens[1:])
    return outputs, loss, loss / dist.get_world_size()


def operations(model: DecoderBlock) -> int:
    """Through both halves of the block and back, for every token of the chain, and the sum over the batch."""
    return 2 * TOKENS * (2 * 4 * HIDDEN + 2 * 2 * FEED_FORWARD) + BATCH * TOKENS


EXAMPLE = Example("decoder", build, step, lambda model: None, operations)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))

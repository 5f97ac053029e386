"""A DLRM: embedding tables spread over the ranks, everything else data-parallel.

    torchrun --nproc-per-node 4 -m kernels.examples.dlrm --check

`EmbeddingAllToAll` is where the two meet: each rank looks its tables up for the global batch and ends with all tables for its
part of the batch (embedding + All-to-All). Going back, the gradients of the bags return to the owners of the tables.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..modules import EmbeddingAllToAll
from .common import Example, main

ROWS = (40, 7, 100, 13, 60, 25, 9, 30)  # of each table
DIM, DENSE, BATCH, LONGEST_BAG = 16, 13, 30, 6


class DLRM(nn.Module):
    """Bottom MLP, embeddings, pairwise products, top MLP; one click probability (logit) per sample of this rank."""

    def __init__(self, rows: tuple[int, ...], dim: int, dense: int, device: torch.device):
        super().__init__()
        vectors = len(rows) + 1
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, dim), nn.ReLU()).to(device)
        self.embeddings = EmbeddingAllToAll(rows, dim, device=device)
        self.top = nn.Sequential(nn.Linear(dim + vectors * (vectors - 1) // 2, 32), nn.ReLU(), nn.Linear(32, 1)).to(
            device
        )
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1, device=device), persistent=False)

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor, sample_weights: Tensor) -> Tensor:
        """dense [batch_local, dense]; bags of this rank's tables for the global batch; to [batch_local]."""
        x = self.bottom(dense)
        vectors = torch.cat([x.unsqueeze(1), self.embeddings(indices, offsets, sample_weights)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


def build(device: torch.device) -> DLRM:
    torch.manual_seed(0)  # the replicated parts alike on every rank
    model = DLRM(ROWS, DIM, DENSE, device)
    torch.manual_seed(dist.get_rank())
    nn.init.normal_(model.embeddings.weight, std=0.5)
    return model


def _samples(model: DLRM) -> tuple[Tensor, ...]:
    """A global batch, of which this rank keeps its samples' dense part and labels and its tables' bags."""
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(BATCH, DENSE, generator=generator)
    labels = (dense[:, 0] > 0.5).float()  # a third: of half, the last bias's gradient would be a sum that cancels
    lengths = torch.randint(0, LONGEST_BAG + 1, (len(ROWS), BATCH), generator=generator)
    indices = [
        torch.randint(0, r, (n,), generator=generator) for r, n in zip(ROWS, lengths.sum(1).tolist(), strict=True)
    ]
    tables = model.embeddings
    mine = slice(tables.first_table, tables.first_table + tables.tables[tables.rank])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths[mine].flatten().cumsum(0)])
    local = torch.tensor_split(torch.arange(BATCH), dist.get_world_size())[dist.get_rank()]
    sample_weights = torch.rand(int(offsets[-1]), generator=generator)
    kept = dense[local], labels[local], torch.cat(indices[mine]), offsets, sample_weights
    return tuple(t.to(tables.weight.device) for t in kept)


def step(model: DLRM) -> tuple[Tensor, Tensor, Tensor]:
    """The ranks' losses add up to the mean over the global batch."""
    dense, labels, *bags = _samples(model)
    logits = model(dense, *bags)
    loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / BATCH
    return logits, loss, loss


def finish_gradients(model: DLRM) -> None:
    """Add the replicated parts' gradients; the tables' own are complete."""
    for part in (model.bottom, model.top):
        for parameter in part.parameters():
            dist.all_reduce(parameter.grad)


def operations(model: DLRM) -> int:
    """Through both MLPs, the pooling and the products, back, and the sum over the batch."""
    widths = [layer.in_features for part in (model.bottom, model.top) for layer in part if isinstance(layer, nn.Linear)]
    return 2 * (2 * sum(widths) + 2 * LONGEST_BAG + 2 * DIM) + BATCH


EXAMPLE = Example("dlrm", build, step, finish_gradients, operations)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))

"""Layers whose collective is fused with their computation, for model authors; `fused=False` is the library's way to the same.

Every layer takes `group` (process group, its name, or None for the default group) and `fused`, which may be changed at any
time and must be the same on every rank. Unfused is torch's own computation followed by a functional collective: right
everywhere, for any dtype and world size. Both ways give the same results and gradients within the dtype's error bound.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gemv_all_reduce, ops
from .differentiable import all_gather, all_to_all, sum_over_ranks
from .embedding_problem import POOLING_MODES, part_size
from .errors import require
from .gemm_problem import destination_offsets
from .ops.embedding import positions
from .ops.memory import Group, group_name, process_group


def _require_share(name: str, total: int, ranks: int) -> None:
    require(total >= 1 and total % ranks == 0, name, total, f"a multiple of {ranks} ranks")


class RowParallelLinear(nn.Module):
    """`y = x @ W.T` (+ bias, + residual) with the features of x, the columns of W, spread over the ranks.

    Fused for up to 8 rows (decode); more rows (prefill) are no GEMV and go the library's way. The result is the same on
    every rank, and so must its gradient be, as it is when each rank computes the same loss.

    Args:
        in_features: features over all ranks; must divide by the world size.
        out_features: features of the result.
        bias: whether there is one; every rank holds it whole.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: Group = None,
        fused: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.group_name, self.fused = group_name(group), fused
        ranks = process_group(self.group_name)
        _require_share("in_features", in_features, ranks.size())
        require(out_features >= 1, "out_features", out_features, "1 or more")
        self.rank, self.local_features = ranks.rank(), in_features // ranks.size()
        self.weight = nn.Parameter(torch.empty(out_features, self.local_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        nn.init.uniform_(self.weight, -(in_features**-0.5), in_features**-0.5)

    def load_full(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Take this rank's columns of a whole layer's weight [out_features, in_features], and its bias [out_features]."""
        rows, columns = self.weight.shape
        whole = (rows, columns * process_group(self.group_name).size())
        require(tuple(weight.shape) == whole, "shape of weight", tuple(weight.shape), str(whole))
        if bias is not None:
            require(self.bias is not None, "bias", tuple(bias.shape), "None, since the layer has none")
            require(tuple(bias.shape) == (rows,), "shape of bias", tuple(bias.shape), str((rows,)))
        with torch.no_grad():
            self.weight.copy_(weight[:, self.rank * self.local_features : (self.rank + 1) * self.local_features])
            if bias is not None:
                self.bias.copy_(bias)

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """[..., in_features / world_size] (and residual [..., out_features]) to [..., out_features]."""
        rows = input.reshape(-1, input.shape[-1])
        if residual is not None:
            shape = (*input.shape[:-1], self.weight.shape[0])
            require(tuple(residual.shape) == shape, "shape of residual", tuple(residual.shape), str(shape))
        extra = None if residual is None else residual.reshape(-1, residual.shape[-1])
        if self.fused and 1 <= rows.shape[0] <= gemv_all_reduce.MAX_BATCH:
            out = ops.gemv_all_reduce(rows, self.weight, self.bias, extra, self.group_name)
        else:
            out = sum_over_ranks(F.linear(rows, self.weight), self.group_name)
            out = out if self.bias is None else out + self.bias
            out = out if extra is None else out + extra
        return out.view(*input.shape[:-1], self.weight.shape[0])


class EmbeddingAllToAll(nn.Module):
    """Embedding tables spread over the ranks; the result spread over the batch: `[bags of this rank, all tables, dim]`.

    Tables are dealt out in contiguous blocks, the first ranks one more, as the batch is.

    Args:
        num_embeddings: rows of every table, of all ranks, in order; at least one table a rank.
        embedding_dim: length of a row, the same for all.
        mode: "sum" or "mean" (the sum divided by the number of indices; zeros for an empty bag).
    """

    def __init__(
        self,
        num_embeddings: Sequence[int],
        embedding_dim: int,
        mode: str = "sum",
        *,
        group: Group = None,
        fused: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.group_name, self.fused, self.mode = group_name(group), fused, mode
        ranks = process_group(self.group_name)
        require(len(num_embeddings) >= ranks.size(), "len(num_embeddings)", len(num_embeddings), f"{ranks.size()}, the ranks, or more")  # fmt: skip
        require(min(num_embeddings) >= 1, "num_embeddings", tuple(num_embeddings), "1 or more rows in each table")
        require(embedding_dim >= 1, "embedding_dim", embedding_dim, "1 or more")
        require(mode in POOLING_MODES, "mode", mode, ", ".join(POOLING_MODES))
        share, extra = divmod(len(num_embeddings), ranks.size())
        self.rank, self.tables = ranks.rank(), [share + (rank < extra) for rank in range(ranks.size())]
        self.first_table = sum(self.tables[: self.rank])
        rows = torch.tensor([0, *num_embeddings[self.first_table : self.first_table + self.tables[self.rank]]])
        self.register_buffer("table_offsets", rows.cumsum(0)[:-1].to(device), persistent=False)
        self.weight = nn.Parameter(torch.empty(int(rows.sum()), embedding_dim, device=device, dtype=dtype))
        nn.init.uniform_(self.weight, -(embedding_dim**-0.5), embedding_dim**-0.5)

    def forward(self, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None = None) -> Tensor:
        """Bags of this rank's tables for the global batch, in table order (see `ops.embedding_all_to_all`)."""
        operands = (self.weight, self.table_offsets, indices, offsets, per_sample_weights)
        if self.fused:
            return ops.embedding_all_to_all(
                *operands, tables=self.tables, pooling_mode=self.mode, group=self.group_name
            )
        return self._bulk(*operands)

    def _bulk(
        self, weight: Tensor, table_offsets: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None
    ) -> Tensor:
        """One embedding_bag over all local tables, the all-to-all, and the permutation that the fused way does without."""
        mine, dim, ranks = self.tables[self.rank], weight.shape[1], len(self.tables)
        batch = (offsets.numel() - 1) // mine
        bags = [part_size(batch, peer, ranks) for peer in range(ranks)]
        rows = positions(indices, offsets, table_offsets)[1]
        scale = None if per_sample_weights is None else per_sample_weights.to(weight.dtype)
        pooled = F.embedding_bag(
            rows, weight, offsets.long(), mode="sum", per_sample_weights=scale, include_last_offset=True
        )
        if self.mode == "mean":
            pooled = (pooled / offsets.diff().clamp(min=1).unsqueeze(1)).to(weight.dtype)
        sent = torch.cat([part.reshape(-1, dim) for part in pooled.view(mine, batch, dim).split(bags, dim=1)])
        received = all_to_all(
            sent, [count * bags[self.rank] for count in self.tables], [mine * count for count in bags], self.group_name
        )
        return received.view(-1, bags[self.rank], dim).transpose(0, 1).contiguous()


class ExpertCombine(nn.Module):
    """The last matrix of a mixture-of-experts layer and the way home: each row of its product to the rank that owns it.

    Args:
        experts: experts of all ranks; must divide by the world size.
        in_features, out_features: of every expert.
    """

    def __init__(
        self,
        experts: int,
        in_features: int,
        out_features: int,
        *,
        group: Group = None,
        fused: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.group_name, self.fused = group_name(group), fused
        ranks = process_group(self.group_name)
        _require_share("experts", experts, ranks.size())
        require(in_features >= 1, "in_features", in_features, "1 or more")
        require(out_features >= 1, "out_features", out_features, "1 or more")
        self.rank, self.ranks, self.local_experts = ranks.rank(), ranks.size(), experts // ranks.size()
        shape = self.local_experts, out_features, in_features
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        nn.init.uniform_(self.weight, -(in_features**-0.5), in_features**-0.5)

    def forward(self, input: Tensor, counts: Tensor, scale: Tensor | None = None, *, rows_out: int) -> Tensor:
        """Rows dispatched to this rank's experts to [rows_out, out_features]: first those from rank 0, by expert, and so on.

        Args:
            input: [rows, in_features], sorted by (expert, rank that owns the row); rows behind the counted ones are not used.
            counts: int32 [experts of this rank, world_size], rows of each block.
            scale: float32 [rows], router weight of each row, or None.
            rows_out: room for the rows that this rank owns, the same on every rank; rows behind them are zero.
        """
        all_counts = all_gather(counts, self.group_name, self.ranks).view(self.ranks, self.local_experts, self.ranks)
        if not self.fused:
            return self._bulk(input, all_counts, scale, rows_out)
        places = destination_offsets(all_counts, self.rank)
        return ops.gemm_all_to_all(input, self.weight, counts, places, scale, rows_out=rows_out, group=self.group_name)

    def _bulk(self, input: Tensor, all_counts: Tensor, scale: Tensor | None, rows_out: int) -> Tensor:
        """A product per expert, then all-to-all; the host must know the counts, so it waits for the device."""
        sent, arriving = int(all_counts.sum((1, 2)).max()), int(all_counts.sum((0, 1)).max())
        require(sent <= len(input), "largest sum of a rank's counts", sent, f"at most {len(input)}, the rows of input")
        require(arriving <= rows_out, "largest number of rows for a rank", arriving, f"at most {rows_out}, rows_out")
        counts = all_counts[self.rank].tolist()
        received = all_counts[:, :, self.rank].sum(1).tolist()
        sizes = [sum(blocks) for blocks in counts]
        used = input[: sum(sizes)]
        products = torch.cat([F.linear(x, w) for x, w in zip(used.split(sizes), self.weight, strict=True)])
        if scale is not None:
            products = (products * scale[: len(products), None]).to(products.dtype)
        blocks = products.split([count for of_expert in counts for count in of_expert])
        by_rank = [blocks[expert * self.ranks + rank] for rank in range(self.ranks) for expert in range(len(counts))]
        arrived = all_to_all(torch.cat(by_rank), received, [sum(column) for column in zip(*counts, strict=True)], self.group_name)  # fmt: skip
        return F.pad(arrived, (0, 0, 0, rows_out - arrived.shape[0]))

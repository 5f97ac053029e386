"""What operators check before a launch. Every mistake is a `ProblemError`: the thing, its value, what is allowed."""

from typing import Any

import torch

from .errors import require
from .plan import ORDERS
from .symmetric import SymmetricMemory, agree

MAX_GRID = 4096
MAX_WARPS = 32
TRANSPORTS = ("peer", "staged", "rdma")


def check_power(name: str, value: int, least: int = 1, most: int | None = None) -> None:
    """A power of two, as tiles and warps must be."""
    ok = isinstance(value, int) and least <= value and value & (value - 1) == 0 and (most is None or value <= most)
    bounds = f", {least} or more" if most is None else f", {least} to {most}"
    require(ok, name, value, "a power of two" + ("" if (least, most) == (1, None) else bounds))


def check_count(name: str, value: int, most: int | None = None) -> None:
    """A whole number, 1 or more."""
    ok = isinstance(value, int) and 1 <= value and (most is None or value <= most)
    require(ok, name, value, "1 or more" if most is None else f"1 to {most}")


def check_launch(config: Any, transports: tuple[str, ...] = TRANSPORTS) -> None:
    """The fields that the configurations of all operators have.

    Interleaved orders are not for rdma: a slice leaves when its last tile is done, and its tiles are those of neighbouring
    work-groups, which would come to them at different times. All destinations share the NIC there anyway.
    """
    require(config.transport in transports, "transport", config.transport, ", ".join(transports))
    orders = [order for order in ORDERS if (config.transport, order) != ("rdma", "interleaved")]
    require(config.order in orders, f"order over {config.transport}", config.order, ", ".join(orders))
    check_count("grid", config.grid, MAX_GRID)
    check_power("num_warps", config.num_warps, most=MAX_WARPS)


def check_tensor(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Exact shape and dtype, contiguous."""
    require(tuple(tensor.shape) == shape, f"shape of {name}", tuple(tensor.shape), str(shape))
    require(tensor.dtype == dtype, f"dtype of {name}", str(tensor.dtype), str(dtype))
    require(tensor.is_contiguous(), f"stride of {name}", tensor.stride(), "contiguous")


def check_devices(device: torch.device, **tensors: torch.Tensor | None) -> None:
    """All operands of a call lie on one device."""
    for name, tensor in tensors.items():
        if tensor is not None:
            require(tensor.device == device, f"device of {name}", str(tensor.device), str(device))


def check_each(ok: torch.Tensor, name: str, values: torch.Tensor, allowed: str) -> None:
    """Every element of `values` that `ok` (bool, the same shape) is false for is a mistake: the first is named by its index."""
    wrong = ok.logical_not().nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        require(False, f"{name}[{', '.join(map(str, place))}]", values[place].item(), allowed)


def check_apart(out: torch.Tensor, **operands: torch.Tensor | None) -> None:
    """Peers may store into `out` while this rank still reads its operands: no bytes of theirs may be out's."""
    low, high = out.data_ptr(), out.data_ptr() + out.numel() * out.element_size()
    for name, tensor in operands.items():
        if tensor is not None and tensor.numel():
            start, end = tensor.data_ptr(), tensor.data_ptr() + _span(tensor) * tensor.element_size()
            require(end <= low or high <= start, "memory of out", f"that of {name}", "memory of its own")


def _span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last that a tensor's strides reach (its numel if contiguous)."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def check_ranks(symm: SymmetricMemory, operator: str, world_size: int, same: object) -> None:
    """Collective once per distinct `same`: the problem is for as many ranks as there are, and alike on all of them."""
    require(world_size == symm.world_size, "problem.world_size", world_size, f"{symm.world_size}, the ranks there are")
    agree(symm, f"{operator} call", same)

"""Reductions and scans of interpreted kernels: half types accumulate in float32, user combine functions work on slices.

Triton's interpreter reduces bit patterns of bfloat16, accumulates float16 in float16, and calls a user's combine function once per element.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from .numerics import SMALL, decode, encode

_HALF = SMALL | {tl.float16}


def _tensor(data: np.ndarray, ty: tl.dtype) -> tl.tensor:
    block = tl.block_type(ty, list(data.shape)) if data.shape else ty
    return tl.tensor(stock.TensorHandle(data if data.shape else data.reshape(1), ty), block)


def _widened(tensors: tuple) -> tuple:
    wide = []
    for x in tensors:
        ty = x.dtype.scalar
        if ty not in _HALF:
            wide.append(x)
            continue
        data = x.handle.data
        wide.append(_tensor(decode(data, ty) if ty in SMALL else data.astype(np.float32), tl.float32))
    return tuple(wide)


def _narrowed(tensors: Any, types: list[tl.dtype]) -> list:
    found = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    for i, (x, ty) in enumerate(zip(found, types, strict=False)):
        if ty in _HALF and x.dtype.scalar == tl.float32:
            data = x.handle.data
            data = encode(data, ty) if ty in SMALL else data.astype(np.float16)
            found[i] = tl.tensor(stock.TensorHandle(data, ty), x.type.with_element_ty(ty) if x.type.is_block() else ty)
    return found


def _combined(combine: Callable, left: list[tl.tensor], right: list[tl.tensor]) -> list[np.ndarray]:
    out = combine(*left, *right)
    out = out if isinstance(out, (tuple, list)) else (out,)
    return [
        np.asarray(o.handle.data if isinstance(o, tl.tensor) else o).astype(x.handle.data.dtype, copy=False)
        for o, x in zip(out, left, strict=True)
    ]


def _reduce_by_halves(self: Any, tensors: tuple) -> list:
    """A user's combine function over an axis of 2**n: neighbours first, so that it needs to be associative only."""
    flat = self.axis is None
    axis = 0 if flat else self.axis % tensors[0].handle.data.ndim
    types = [x.dtype for x in tensors]
    data = [np.moveaxis(x.handle.data.reshape(-1) if flat else x.handle.data, axis, 0) for x in tensors]
    rank = len(tensors[0].handle.data.shape)
    while len(data[0]) > 1:
        left = [_tensor(np.ascontiguousarray(d[0::2]), ty) for d, ty in zip(data, types, strict=True)]
        right = [_tensor(np.ascontiguousarray(d[1::2]), ty) for d, ty in zip(data, types, strict=True)]
        shape = left[0].handle.data.shape
        data = [np.broadcast_to(d, shape) for d in _combined(self.combine_fn, left, right)]
    out = []
    for d, ty in zip(data, types, strict=True):
        d = d[0]
        if self.keep_dims:
            d = d.reshape((1,) * rank) if flat else np.expand_dims(d, axis)
        out.append(self.to_tensor(d if d.shape else d.item(), ty))
    return out


def _scan_by_slices(self: Any, tensors: list) -> list:
    """A user's combine function along an axis, one slice after the other."""
    axis = self.axis % tensors[0].handle.data.ndim
    types = [x.dtype for x in tensors]
    data = [np.moveaxis(x.handle.data, axis, 0) for x in tensors]
    out = [np.empty(d.shape, d.dtype) for d in data]
    for i in range(len(data[0])):
        right = [_tensor(np.ascontiguousarray(d[i]), ty) for d, ty in zip(data, types, strict=True)]
        if i == 0:
            values = [x.handle.data.reshape(d[0].shape) for x, d in zip(right, data, strict=True)]
        else:
            left = [_tensor(np.ascontiguousarray(o[i - 1]), ty) for o, ty in zip(out, types, strict=True)]
            values = _combined(self.combine_fn, left, right)
        for o, v in zip(out, values, strict=True):
            o[i] = v.reshape(o[i].shape) if v.size == o[i].size else v
    return [self.to_tensor(np.ascontiguousarray(np.moveaxis(o, 0, axis)), ty) for o, ty in zip(out, types, strict=True)]


def install() -> None:
    """Replace how the interpreter reduces and scans, once a process."""
    reduce_impl, scan_impl = stock.ReduceOps.apply_impl, stock.ScanOps.apply_impl

    def reduce(self: Any, tensors: tuple) -> list:
        return _narrowed(reduce_impl(self, _widened(tensors)), [x.dtype.scalar for x in tensors])

    def scan(self: Any, tensors: tuple) -> list:
        return _narrowed(scan_impl(self, _widened(tensors)), [x.dtype.scalar for x in tensors])

    stock.ReduceOps.apply_impl, stock.ReduceOps.generic_reduce = reduce, _reduce_by_halves
    stock.ScanOps.apply_impl, stock.ScanOps.generic_scan = scan, _scan_by_slices

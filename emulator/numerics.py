"""Arithmetic of interpreted kernels, repaired where Triton's interpreter is wrong.

The interpreter carries bfloat16 as uint16 and fp8 as uint8 bit patterns and computes on the patterns; it truncates instead
of rounding to nearest even, and its fp8 rounding loses the carry. `ExactNumerics` computes on float32 values and rounds
the result once, to nearest even, as torch does (overflow included: infinity or NaN, not saturation). `tl.dot` multiplies in
float32 whatever the operands' type, `tl.sum` and other reductions of half types accumulate in float32.

Not repaired: fp8e4b15 (torch has none), rounding modes other than to nearest even, tf32 (float32 dots are exact).
"""

from collections.abc import Callable

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from .backend import Rmw

Handle = stock.TensorHandle

_TORCH = {
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
_FP8_VALUES = {ty: torch.arange(256, dtype=torch.uint8).view(like).float().numpy() for ty, like in _TORCH.items()}
SMALL = frozenset({tl.bfloat16, *_TORCH})  # types that numpy does not know

_stock_np_dtype = stock._get_np_dtype
_np_dtypes: dict[str, np.dtype] = {}


def np_dtype(ty: tl.dtype) -> np.dtype:
    """The numpy type that carries a Triton scalar, pointer or block type (the interpreter builds a table each time)."""
    if type(ty) is tl.dtype:
        known = _np_dtypes.get(ty.name)
        if known is None:
            known = _np_dtypes[ty.name] = _stock_np_dtype(ty)
        return known
    return np_dtype(ty.element_ty) if isinstance(ty, tl.block_type) else _stock_np_dtype(ty)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """uint16 bit patterns to float32 values, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 values to uint16 bit patterns, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)).astype(
        np.uint16
    )
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    if nan.any():
        rounded = np.where(nan, np.uint16(0x7FC0), rounded)
    return rounded


def decode(bits: np.ndarray, ty: tl.dtype) -> np.ndarray:
    """Bit patterns of a small type to float32 values."""
    return bf16_to_f32(bits) if ty == tl.bfloat16 else _FP8_VALUES[ty][bits]


def encode(values: np.ndarray, ty: tl.dtype) -> np.ndarray:
    """Values to bit patterns of a small type, rounded to nearest even by way of float32."""
    if ty == tl.bfloat16:
        return f32_to_bf16(values)
    flat = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return flat.to(_TORCH[ty]).view(torch.uint8).numpy()


def combine(op: Rmw, old: np.ndarray, operand: np.ndarray) -> np.ndarray:
    """What a read-modify-write puts in place of `old`, elementwise; both of one dtype, which the result has too."""
    if op is Rmw.XCHG:
        return operand.copy()
    if op is Rmw.FADD_BF16:
        return f32_to_bf16(bf16_to_f32(old) + bf16_to_f32(operand))
    if op in (Rmw.UMIN, Rmw.UMAX, Rmw.MIN, Rmw.MAX):
        kind = "u" if op in (Rmw.UMIN, Rmw.UMAX) else "i"
        as_int = np.dtype(f"{kind}{old.itemsize}")
        pick = np.minimum if op in (Rmw.UMIN, Rmw.MIN) else np.maximum
        return pick(old.view(as_int), operand.view(as_int)).view(old.dtype)
    with np.errstate(all="ignore"):
        return _COMBINE[op](old, operand)


_COMBINE: dict[Rmw, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    Rmw.ADD: np.add,
    Rmw.FADD: np.add,
    Rmw.AND: np.bitwise_and,
    Rmw.OR: np.bitwise_or,
    Rmw.XOR: np.bitwise_xor,
}


def _wide(handle: Handle) -> np.ndarray:
    """Values of a handle for arithmetic: float32 if its type is small, else as they are."""
    ty = handle.dtype.scalar
    return decode(handle.data, ty) if ty in SMALL and handle.data.dtype.kind == "u" else handle.data


def _handle(values: np.ndarray, ty: tl.dtype) -> Handle:
    """A handle of type `ty`, rounding if it is small. Truth values become int1 whatever `ty` is."""
    if values.dtype == np.bool_:
        return Handle(values, tl.int1)
    if ty in SMALL:
        return Handle(encode(values, ty), ty)
    if isinstance(ty, tl.pointer_type):
        return Handle(values, ty)
    wanted = np_dtype(ty)
    return Handle(values if values.itemsize <= wanted.itemsize else values.astype(wanted), ty)


class ExactNumerics(stock.InterpreterBuilder):
    """An interpreter builder whose casts, arithmetic, comparisons and dots are right for every type."""

    def cast_impl(self, src: Handle, dst_type: tl.dtype) -> Handle:
        ty = dst_type.scalar
        values = _wide(src)
        if ty in SMALL:
            return Handle(encode(values, ty), ty)
        return Handle(values.astype(np_dtype(ty)), ty)

    def get_bf16(self, value: float) -> Handle:
        return Handle(encode(np.array([value]), tl.bfloat16), tl.bfloat16)

    def create_splat(self, ret_ty: tl.block_type, arg: Handle) -> Handle:
        return Handle(np.full(ret_ty.shape, arg.data.reshape(-1)[0]), arg.dtype.scalar)

    def create_fp_to_fp(self, src: Handle, dst_type: tl.dtype, rounding_mode: ir.ROUNDING_MODE | None) -> Handle:
        inexact = rounding_mode is not None and rounding_mode != ir.ROUNDING_MODE.RTNE
        if inexact or tl.float8e4b15 in (src.dtype.scalar, dst_type.scalar):
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    def binary_op(self, lhs: Handle, rhs: Handle, op: Callable) -> Handle:
        a, b = lhs.data, rhs.data
        ty = lhs.dtype.scalar
        kind = a.dtype.kind
        if kind == "u" and a.itemsize <= 2 and ty in SMALL and op not in _BITWISE:
            return _handle(op(_wide(lhs), _wide(rhs)), ty)
        if kind == "b" and b.dtype.kind == "b" and op in _WRAPPING:  # int1 wraps; numpy's truth values do not
            return Handle((op(a.astype(np.int8), b.astype(np.int8)) & 1).astype(np.bool_), ty)
        out = op(a, b)
        if out.dtype.kind == "b":
            return Handle(out, tl.int1)
        return Handle(out if out.itemsize <= a.itemsize else out.astype(np_dtype(ty)), ty)

    def unary_op(self, arg: Handle, op: Callable) -> Handle:
        return _handle(op(_wide(arg)), arg.dtype.scalar)

    def create_fneg(self, arg: Handle) -> Handle:
        return self.unary_op(arg, np.negative)

    def create_minnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self, arg: Handle, lo: Handle, hi: Handle, propagate_nans: object) -> Handle:
        if propagate_nans == ir.PROPAGATE_NAN.NONE:
            return self.create_minnumf(self.create_maxnumf(arg, lo), hi)
        return _handle(np.clip(_wide(arg), _wide(lo), _wide(hi)), arg.dtype.scalar)

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        ty = z.dtype.scalar
        if z.data.dtype == np.float64:
            return super().create_fma(x, y, z)
        # Products of two float32 are exact in float64; the sum is rounded there and then once more.
        product = np.multiply(_wide(x), _wide(y), dtype=np.float64)
        return _handle((product + _wide(z)).astype(np.float32 if ty in SMALL else z.data.dtype), ty)

    def create_rsqrt(self, arg: Handle) -> Handle:
        return self.unary_op(arg, lambda x: np.reciprocal(np.sqrt(x)))

    def create_dot(self, a: Handle, b: Handle, d: Handle, *rest: object) -> Handle:
        if a.data.dtype.kind == "f" and a.data.itemsize >= 4:
            return Handle(np.matmul(a.data, b.data).astype(d.data.dtype, copy=False) + d.data, d.dtype.scalar)
        if a.dtype.scalar.is_floating():
            out = np.matmul(_wide(a).astype(np.float32), _wide(b).astype(np.float32)) + _wide(d)
            return _handle(
                out.astype(np.float32 if d.dtype.scalar in SMALL else d.data.dtype, copy=False), d.dtype.scalar
            )
        return Handle(np.matmul(a.data, b.data, dtype=d.data.dtype) + d.data, d.dtype.scalar)

    create_si_to_fp = create_ui_to_fp = create_fp_to_si = create_fp_to_ui = cast_impl
    create_fp_ext = create_fp_trunc = cast_impl


_BITWISE = frozenset({np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift})
_WRAPPING = frozenset({np.add, np.subtract})

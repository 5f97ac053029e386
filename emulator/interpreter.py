"""Triton's interpreter with its memory operations forwarded to a backend.

Call `install` once in a process that was started with TRITON_INTERPRET=1, then, for each launch, `prepare` the kernel and run
the function that it returns once per work-group while a backend is `active`. Without an active backend, the builder behaves
like the stock one with exact numerics. Works with triton 3.6 to 3.9.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from . import assembly, extern, language, reductions
from .backend import Backend, Lanes, Rmw, Scope, Sem
from .errors import EmulatorError
from .numerics import ExactNumerics, np_dtype

Handle = stock.TensorHandle

SEMS = {
    ir.MEM_SEMANTIC.RELAXED: Sem.RELAXED,
    ir.MEM_SEMANTIC.ACQUIRE: Sem.ACQUIRE,
    ir.MEM_SEMANTIC.RELEASE: Sem.RELEASE,
    ir.MEM_SEMANTIC.ACQUIRE_RELEASE: Sem.ACQ_REL,
}
SCOPES = {
    ir.MEM_SYNC_SCOPE.CTA: Scope.CTA,
    ir.MEM_SYNC_SCOPE.GPU: Scope.GPU,
    ir.MEM_SYNC_SCOPE.SYSTEM: Scope.SYS,
}
RMWS = {getattr(ir.ATOMIC_OP, op.name): op for op in Rmw if op is not Rmw.FADD_BF16}
_SCALAR = Lanes((1,), None)


def _active(pointers: np.ndarray, mask: Any) -> tuple[np.ndarray, Lanes]:
    """Addresses of the active lanes, 1-D, and which they are. `mask`: handle, array or None."""
    if mask is not None:
        mask = mask if isinstance(mask, np.ndarray) else mask.data
        if not mask.all():
            mask = np.broadcast_to(mask, pointers.shape)
            return pointers[mask], Lanes(pointers.shape, mask)
    if pointers.shape == (1,):
        return pointers, _SCALAR
    return np.ascontiguousarray(pointers).reshape(-1), Lanes(pointers.shape, None)


def _values(data: np.ndarray, lanes: Lanes) -> np.ndarray:
    """Values of the active lanes, 1-D, not shared with the kernel's tensor."""
    if data.shape != lanes.shape:
        data = np.broadcast_to(data, lanes.shape)
    return data.flatten() if lanes.mask is None else data[lanes.mask]


def _tile(values: np.ndarray, lanes: Lanes, other: np.ndarray | None) -> np.ndarray:
    """The tile whose active lanes hold `values`."""
    if lanes.mask is None:
        return values.reshape(lanes.shape)
    if other is None:
        out = np.zeros(lanes.shape, values.dtype)
    else:
        out = np.broadcast_to(other, lanes.shape).astype(values.dtype)
    out[lanes.mask] = values
    return out


class EmulatedBuilder(ExactNumerics):
    """The builder behind all interpreted kernels of this process. `backend` is set during launches only."""

    backend: Backend | None = None

    def create_get_program_id(self, axis: int) -> Handle:
        if self.backend is None:
            return super().create_get_program_id(axis)
        return Handle(np.array([self.backend.program_id(axis)], np.int32), tl.int32)

    def create_get_num_programs(self, axis: int) -> Handle:
        if self.backend is None:
            return super().create_get_num_programs(axis)
        return Handle(np.array([self.backend.num_programs(axis)], np.int32), tl.int32)

    # ---- plain loads and stores; *rest differs between Triton versions, a load's last argument is always is_volatile
    def create_load(self, ptr: Handle, *rest: Any) -> Handle:
        return self.create_masked_load(ptr, None, None, *rest)

    def create_store(self, ptr: Handle, val: Handle, *rest: Any) -> None:
        return self.create_masked_store(ptr, val, None, *rest)

    def create_masked_load(
        self, ptrs: Handle, mask: Any, other: Handle | None, *rest: Any, is_volatile: bool = False, **named: Any
    ) -> Handle:
        if rest and isinstance(rest[-1], bool):
            is_volatile = rest[-1]
        sem = Sem.RELAXED if is_volatile else Sem.PLAIN
        return self._load(ptrs, mask, other, sem, Scope.SYS)

    def _load(self, ptrs: Handle, mask: Any, other: Handle | None, sem: Sem, scope: Scope) -> Handle:
        ty = ptrs.get_element_ty()
        dtype = np_dtype(ty)
        addresses, lanes = _active(ptrs.data, mask)
        if not addresses.size:
            values = np.zeros(0, dtype)
        elif self.backend is None:
            values = raw_load(addresses, dtype)
        else:
            values = self.backend.load(addresses, dtype, sem, scope, lanes)
        return Handle(_tile(values, lanes, None if other is None else other.data), ty)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Any, *rest: Any) -> None:
        self._store(ptrs, value, mask, Sem.PLAIN, Scope.SYS)

    def _store(self, ptrs: Handle, value: Handle, mask: Any, sem: Sem, scope: Scope) -> None:
        addresses, lanes = _active(ptrs.data, mask)
        if not addresses.size:
            return
        values = _values(value.data, lanes)
        if self.backend is None:
            raw_store(addresses, values)
        else:
            self.backend.store(addresses, values, sem, scope, lanes)

    def create_descriptor_store(self, desc: Any, value: Handle, indices: list[Handle]) -> None:
        pointers, mask = desc.materialize_pointers(indices)
        if self.backend is None:
            self._store(pointers, value, mask, Sem.PLAIN, Scope.SYS)
            return
        addresses, lanes = _active(pointers.data, mask)
        if addresses.size:
            self.backend.store_async(addresses, _values(value.data, lanes), lanes)

    # ---- atomics
    def create_atomic_rmw(self, op: Any, ptr: Handle, val: Handle, mask: Any, sem: Any, scope: Any) -> Handle:
        addresses, lanes = _active(ptr.data, mask)
        values = _values(val.data, lanes)
        kind = RMWS[op]
        if kind is Rmw.FADD and val.dtype.scalar == tl.bfloat16:
            kind = Rmw.FADD_BF16
        if not addresses.size:
            old = values
        elif self.backend is None:
            old = raw_rmw(kind, addresses, values)
        else:
            old = self.backend.atomic_rmw(kind, addresses, values, SEMS[sem], SCOPES[scope], lanes)
        return Handle(_tile(old, lanes, None), val.dtype.scalar)

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
        addresses, lanes = _active(ptr.data, None)
        desired = _values(val.data, lanes)
        expected = _values(cmp.data, lanes).astype(desired.dtype, copy=False)
        if self.backend is None:
            old = raw_cas(addresses, expected, desired)
        else:
            old = self.backend.atomic_cas(addresses, expected, desired, SEMS[sem], SCOPES[scope], lanes)
        return Handle(_tile(old, lanes, None), cmp.dtype.scalar)

    def create_atomic_load(self, ptr: Handle, mask: Any, sem: Any, scope: Any) -> Handle:
        return self._load(ptr, mask, None, SEMS[sem], SCOPES[scope])

    def create_atomic_store(self, ptr: Handle, val: Handle, mask: Any, sem: Any, scope: Any) -> None:
        self._store(ptr, val, mask, SEMS[sem], SCOPES[scope])

    def create_atomic_poll(
        self, ptr: Handle, expected: Handle, timeout_ns: Handle | None, sem: Any, scope: Any
    ) -> Handle:
        if self.backend is None:
            return super().create_atomic_poll(ptr, expected, timeout_ns, sem, scope)
        start = self.backend.clock() if timeout_ns is not None else 0
        while True:
            equal = self._load(ptr, None, None, SEMS[sem], SCOPES[scope]).data == expected.data
            expired = timeout_ns is not None and self.backend.clock() - start >= int(timeout_ns.data.reshape(-1)[0])
            if equal.all() or expired:
                return Handle(np.broadcast_to(equal, ptr.data.shape), tl.int1)

    # ---- synchronisation and code of other languages
    def create_barrier(self, *rest: Any) -> None:
        if self.backend is not None:
            self.backend.barrier()

    def create_inline_asm(
        self, asm: str, constraints: str, values: list[Handle], types: list[tl.dtype], is_pure: bool, pack: int
    ) -> "_Results":
        outputs = [np_dtype(ty.scalar) for ty in types]
        arrays = assembly.execute(self.backend, asm, [v.data for v in values], outputs)
        return _Results([Handle(a, ty.scalar) for a, ty in zip(arrays, types, strict=True)])

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, args: list[Handle], ret: tl.dtype, is_pure: bool
    ) -> Handle:
        return Handle(extern.execute(self.backend, symbol, [a.data for a in args], np_dtype(ret.scalar)), ret.scalar)

    def create_print(self, prefix: str, hex: bool, values: list[Handle], is_signed: Any) -> None:
        if self.backend is not None:  # the stock one prints these
            self.grid_idx = tuple(self.backend.program_id(axis) for axis in range(3))
        super().create_print(prefix, hex, values, is_signed)


class _Results:
    """What inline assembly returns: one handle an output."""

    def __init__(self, handles: list[Handle]):
        self.handles = handles

    def get_result(self, i: int) -> Handle:
        return self.handles[i]


# ---- memory itself, without a model: atomics are atomic between processes too
_TRUE = np.ones(1 << 12, np.bool_)
_ZERO: dict[np.dtype, np.ndarray] = {}
_RELAXED = stock._interpreter.MEM_SEMANTIC.ACQUIRE_RELEASE
_RAW_OP = {op: getattr(stock._interpreter.RMW_OP, op.name) for op in RMWS.values()}


def _true(n: int) -> np.ndarray:
    global _TRUE
    if n > len(_TRUE):
        _TRUE = np.ones(2 * n, np.bool_)
    return _TRUE[:n]


def raw_load(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values at `addresses` of this process."""
    n = len(addresses)
    zero = _ZERO.get(dtype)
    if zero is None or n > len(zero):
        zero = _ZERO[dtype] = np.zeros(max(2 * n, 1 << 12), dtype)
    return stock._interpreter.load(addresses, _true(n), zero[:n], dtype)


def raw_store(addresses: np.ndarray, values: np.ndarray) -> None:
    """Store `values` at `addresses` of this process."""
    stock._interpreter.store(addresses, values, _true(len(addresses)))


def raw_cas(addresses: np.ndarray, expected: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """Atomic compare and swap of each lane."""
    return stock._interpreter.atomic_cas(addresses, expected.copy(), desired, _RELAXED)


def raw_rmw(op: Rmw, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Atomic read-modify-write of each lane; returns the old values."""
    if op is not Rmw.FADD_BF16:
        return stock._interpreter.atomic_rmw(_RAW_OP[op], addresses, values, _true(len(addresses)), _RELAXED)
    from .numerics import combine

    old = np.empty_like(values)
    for i in range(len(addresses)):  # numpy has no bfloat16: one compare-and-swap loop a lane
        place = addresses[i : i + 1]
        seen = raw_load(place, values.dtype)
        while True:
            before = raw_cas(place, seen, combine(op, seen, values[i : i + 1]))
            if before[0] == seen[0]:
                break
            seen = before
        old[i] = seen[0]
    return old


# ---- use
def install() -> EmulatedBuilder:
    """Make every interpreted kernel of this process an emulated one; idempotent. Raises if Triton compiles here."""
    builder = stock.interpreter_builder
    if not triton.knobs.runtime.interpret:
        raise EmulatorError("TRITON_INTERPRET is unset in this process; allowed: 1, set before triton is imported")
    if not isinstance(builder, EmulatedBuilder):
        # By class: kernels already rewritten hold this object. debug: device_assert is silently off without it.
        builder.__class__ = EmulatedBuilder
        builder.options = stock.InterpreterOptions(sanitize_overflow=False, debug=True)
        stock._get_np_dtype = np_dtype
        reductions.install()
        language.install()
        np.seterr(all="ignore")  # kernels overflow and divide by zero silently, as on hardware
    return builder


def prepare(kernel: Any, args: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that runs one work-group of `kernel` with `args` under the active backend.

    kernel: what `@triton.jit` made in this process. args: by name; tensors become pointers, numbers typed scalars.
    """
    function = getattr(kernel, "rewrite", None)
    if function is None:
        raise EmulatorError(f"kernel is {kernel!r}; allowed: a @triton.jit function, imported with TRITON_INTERPRET=1")
    names = set(kernel.arg_names)
    unknown, missing = sorted(set(args) - names), [n for n in kernel.arg_names if n not in args]
    from inspect import signature

    defaults = {n: p.default for n, p in signature(kernel.fn).parameters.items() if p.default is not p.empty}
    missing = [n for n in missing if n not in defaults]
    if unknown or missing:
        raise EmulatorError(
            f"arguments of {kernel.__name__}: unknown {unknown}, missing {missing}; allowed: {kernel.arg_names}"
        )
    body = function()
    constants = {n for n, ann in body.__annotations__.items() if "constexpr" in str(ann)}
    converted = {
        n: value if n in constants else stock._implicit_cvt(value) for n, value in {**defaults, **args}.items()
    }
    return lambda: body(**converted)


@contextmanager
def active(backend: Backend) -> Iterator[None]:
    """While it lasts, all kernels of this process act on `backend`."""
    builder = install()
    before, builder.backend = builder.backend, backend
    try:
        yield
    finally:
        builder.backend = before

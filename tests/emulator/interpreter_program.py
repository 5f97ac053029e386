"""What kernels hand to a backend; prints `check ok` or `check <what came instead>`. Started by test_interpreter.py."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language import core

from emulator import assembly, extern, interpreter, numerics, sites
from emulator.backend import Compare, Rmw, Scope, Sem, Signal
from emulator.errors import EmulatorError, Unsupported


class Recorder:
    """A backend that acts at once and writes down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.lines: list[int] = []
        self.nic = RecordingNic(self.calls)

    def note(self, *call: Any) -> None:
        self.calls.append(call)
        self.lines.append(sites.chain()[2][1])  # behind this method and its caller

    def program_id(self, axis: int) -> int:
        return 5 + axis

    def num_programs(self, axis: int) -> int:
        return 8

    def clock(self) -> int:
        return 123456789012

    def pause(self, nanoseconds: int) -> None:
        self.note("pause", nanoseconds)

    def load(self, addresses: Any, dtype: Any, sem: Any, scope: Any, lanes: Any) -> Any:
        assert addresses.dtype == np.uint64 and addresses.ndim == 1
        self.note("load", len(addresses), dtype.name, sem, scope, lanes.shape)
        return interpreter.raw_load(addresses, dtype)

    def store(self, addresses: Any, values: Any, sem: Any, scope: Any, lanes: Any) -> None:
        assert addresses.dtype == np.uint64 and values.shape == addresses.shape
        self.note("store", len(addresses), values.dtype.name, sem, scope, lanes.shape)
        interpreter.raw_store(addresses, values)

    def store_async(self, addresses: Any, values: Any, lanes: Any) -> None:
        self.note("store_async", len(addresses))
        interpreter.raw_store(addresses, values)

    def wait_async(self, reading_only: bool) -> None:
        self.note("wait_async", reading_only)

    def atomic_rmw(self, op: Any, addresses: Any, values: Any, sem: Any, scope: Any, lanes: Any) -> Any:
        self.note("rmw", op, len(addresses), values.dtype.name, sem, scope)
        old = interpreter.raw_rmw(op, addresses, values)
        if len(addresses) == 1:
            assert (
                interpreter.raw_load(addresses, values.dtype).tobytes() == numerics.combine(op, old, values).tobytes()
            )
        return old

    def atomic_cas(self, addresses: Any, expected: Any, desired: Any, sem: Any, scope: Any, lanes: Any) -> Any:
        self.note("cas", len(addresses), desired.dtype.name, sem, scope)
        return interpreter.raw_cas(addresses, expected, desired)

    def barrier(self) -> None:
        self.note("barrier")

    def fence(self, scope: Any, sc: bool) -> None:
        self.note("fence", scope, sc)


class RecordingNic:
    def __init__(self, calls: list[tuple]):
        self.calls = calls

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            self.calls.append((name, *args))
            return 3

        return call


def run(kernel: Any, **args: Any) -> Recorder:
    backend = Recorder()
    with interpreter.active(backend):
        interpreter.prepare(kernel, args)()
    return backend


def check(name: str, got: Any, want: Any) -> None:
    print(name, "ok" if got == want else f"{got} instead of {want}")


@triton.jit
def plain(x):
    i = tl.arange(0, 8)
    a = tl.load(x + i, mask=(i < 3) | (i == 6), other=-1)
    tl.store(x + 8 + i, a, mask=i != 4)
    b = tl.load(x, volatile=True)
    tl.store(x + 16, b + tl.program_id(0) + tl.program_id(1) + tl.num_programs(2))
    tl.load(x + i, mask=i < 0)
    tl.debug_barrier()


@triton.jit
def atomics(x, f, h):
    i = tl.arange(0, 4)
    tl.atomic_add(x, 2, sem="relaxed", scope="gpu")
    tl.atomic_xchg(x, 7, sem="release", scope="sys")
    tl.atomic_max(x, -1, sem="acquire", scope="cta")
    tl.atomic_min(x, -3)
    tl.atomic_or(x + i, 8, mask=i > 0, sem="acq_rel")
    tl.atomic_and(x, 12)
    tl.atomic_xor(x, 5)
    tl.atomic_cas(x, 1, 9, sem="acquire", scope="sys")
    tl.atomic_add(f, 0.5)
    tl.atomic_max(f, 4.0)
    tl.atomic_add(h, tl.load(h) * 0 + 1)


@triton.jit
def wait_inside(flag):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < 1:
        pass


@triton.jit
def outer(flag):
    wait_inside(flag)


@triton.jit
def asm(x, out):
    one = tl.load(x)
    tl.store(
        out, tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    )
    a = tl.inline_asm_elementwise(
        "ld.acquire.sys.global.b32 $0, [$1];", "=r,l", [x], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out + 1, a)
    tl.inline_asm_elementwise(
        "st.release.sys.global.b32 [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [x + 1, one],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    b = tl.inline_asm_elementwise(
        "atom.acq_rel.gpu.global.add.u32 $0, [$1], $2;", "=r,l,r", [x, one], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out + 2, b)
    tl.inline_asm_elementwise(
        "red.release.sys.global.add.u32 [$1], 5; mov.u32 $0, 0;", "=r,l", [x], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.inline_asm_elementwise(
        "{\n .reg .b32 t; // scratch\n ld.volatile.global.u32 t, [$1+4];\n atom.global.relaxed.sys.cas.b32 $0, [$1], t, 77;\n}",
        "=r,l", [x], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.inline_asm_elementwise(
        "fence.acq_rel.sys; membar.gl; fence.sc.cta; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.inline_asm_elementwise(
        "bar.sync 0; nanosleep.u32 100; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.inline_asm_elementwise(
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0; mov.u32 $0, 0;",
        "=r", [], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.inline_asm_elementwise(
        "buffer_wbl2 sc0 sc1\n s_waitcnt vmcnt(0)\n s_barrier\n s_nop 0\n v_mov_b32 $0, 0",
        "=v",
        [],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def asm_tile(x, out):
    i = tl.arange(0, 4)
    a = tl.inline_asm_elementwise(
        "ld.relaxed.sys.global.b32 $0, [$1];", "=r,l", [x + i], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out + i, a)


@triton.jit
def asm_own(x, out):
    tl.store(
        out,
        tl.inline_asm_elementwise("my.double $0,   $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1),
    )


@triton.jit
def asm_unknown(x):
    tl.inline_asm_elementwise("frobnicate.u32 $0, 1;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)


def symbol(name: str, *types: tl.dtype) -> Callable:
    @core.extern
    def call(args, _semantic=None):
        return core.extern_elementwise("", "", list(args), {types: (name, tl.int32)}, False, _semantic=_semantic)

    return call


my_pe = symbol("nvshmem_my_pe")
fence, quiet = symbol("nvshmem_fence"), symbol("nvshmem_quiet")
put_nbi = symbol("nvshmemx_putmem_nbi_block", tl.int64, tl.int64, tl.int64, tl.int32)
put = symbol("nvshmem_putmem", tl.int64, tl.int64, tl.int64, tl.int32)
get = symbol("nvshmemx_getmem_block", tl.int64, tl.int64, tl.int64, tl.int32)
put_signal = symbol(
    "nvshmemx_putmem_signal_nbi_block", tl.int64, tl.int64, tl.int64, tl.int64, tl.uint64, tl.int32, tl.int32
)
signal_op = symbol("nvshmemx_signal_op", tl.int64, tl.int64, tl.int32, tl.int32)
signal_wait = symbol("nvshmem_signal_wait_until", tl.int64, tl.int32, tl.uint64)
int_wait = symbol("nvshmem_int_wait_until", tl.int64, tl.int32, tl.int32)
mine = symbol("my_own_function", tl.int32)


@core.extern
def square_root(x, _semantic=None):
    return core.extern_elementwise("", "", [x], {(tl.float32,): ("__nv_sqrtf", tl.float32)}, True, _semantic=_semantic)


@triton.jit
def externs(x, f, BIG: tl.constexpr):
    p = x.to(tl.int64)
    n = tl.cast(64, tl.int64)
    tl.store(x, my_pe(()))
    put_nbi((p, p + 64, n, 1))
    put((p, p + 64, n, 1))
    get((p, p + 64, n, 1))
    put_signal((p, p + 64, n, p + 128, tl.cast(9, tl.uint64), 10, 1))
    fence(())
    signal_op((p, tl.cast(4, tl.int64), 9, 1))
    quiet(())
    signal_wait((p, 3, tl.cast(6, tl.uint64)))
    int_wait((p, 0, -2))
    tl.store(x + 1, mine((tl.load(x),)))
    i = tl.arange(0, 4)
    tl.store(f + i, square_root(tl.load(f + i)))


def memory() -> None:
    x = torch.arange(20, dtype=torch.int32)
    seen = run(plain, x=x)
    check("plain", seen.calls, [
        ("load", 4, "int32", Sem.PLAIN, Scope.SYS, (8,)), ("store", 7, "int32", Sem.PLAIN, Scope.SYS, (8,)),
        ("load", 1, "int32", Sem.RELAXED, Scope.SYS, (1,)), ("store", 1, "int32", Sem.PLAIN, Scope.SYS, (1,)), ("barrier",),
    ])  # fmt: skip
    check("values", x.tolist(), [*range(8), 0, 1, 2, -1, 12, -1, 6, -1, 19, 17, 18, 19])
    start = inspect.getsourcelines(plain.fn)[1]
    check("lines", [line - start for line in seen.lines], [3, 4, 5, 6, 8])
    x, f, h = torch.ones(4, dtype=torch.int32), torch.ones(1), torch.ones(1, dtype=torch.bfloat16)
    seen = run(atomics, x=x, f=f, h=h)
    check("atomics", [c[1:] for c in seen.calls if c[0] != "load"], [
        (Rmw.ADD, 1, "int32", Sem.RELAXED, Scope.GPU), (Rmw.XCHG, 1, "int32", Sem.RELEASE, Scope.SYS),
        (Rmw.MAX, 1, "int32", Sem.ACQUIRE, Scope.CTA), (Rmw.MIN, 1, "int32", Sem.ACQ_REL, Scope.GPU),
        (Rmw.OR, 3, "int32", Sem.ACQ_REL, Scope.GPU), (Rmw.AND, 1, "int32", Sem.ACQ_REL, Scope.GPU),
        (Rmw.XOR, 1, "int32", Sem.ACQ_REL, Scope.GPU), (1, "int32", Sem.ACQUIRE, Scope.SYS),
        (Rmw.FADD, 1, "float32", Sem.ACQ_REL, Scope.GPU), (Rmw.MAX, 1, "int32", Sem.ACQ_REL, Scope.GPU),
        (Rmw.FADD_BF16, 1, "uint16", Sem.ACQ_REL, Scope.GPU),
    ])  # fmt: skip
    check("atomic_values", (x.tolist(), f.item(), h.item()), ([9, 9, 9, 9], 4.0, 2.0))
    found: list[tuple] = []

    class Spinning(Recorder):
        def atomic_rmw(self, *args: Any) -> Any:
            found.append(sites.chain())
            return np.ones(1, np.int32)

    backend = Spinning()
    with interpreter.active(backend):
        interpreter.prepare(outer, {"flag": torch.zeros(1, dtype=torch.int32)})()
    check("chain", [name for _, _, name in found[0][1:3]], ["wait_inside", "outer"])


def foreign_code() -> None:
    x, out = torch.tensor([4, 0, 0, 0], dtype=torch.int32), torch.zeros(8, dtype=torch.int64)
    seen = run(asm, x=x, out=out)
    check("asm", [c for c in seen.calls if c[0] not in ("load", "store") or c[3] is not Sem.PLAIN], [
        ("load", 1, "uint32", Sem.ACQUIRE, Scope.SYS, (1,)), ("store", 1, "uint32", Sem.RELEASE, Scope.SYS, (1,)),
        ("rmw", Rmw.ADD, 1, "uint32", Sem.ACQ_REL, Scope.GPU), ("rmw", Rmw.ADD, 1, "uint32", Sem.RELEASE, Scope.SYS),
        ("load", 1, "uint32", Sem.RELAXED, Scope.SYS, (1,)), ("cas", 1, "uint32", Sem.RELAXED, Scope.SYS),
        ("fence", Scope.SYS, False), ("fence", Scope.GPU, True), ("fence", Scope.CTA, True), ("barrier",), ("pause", 100),
        ("wait_async", True), ("wait_async", False), ("fence", Scope.SYS, False), ("fence", Scope.SYS, False), ("barrier",),
    ])  # fmt: skip
    check("asm_values", (out[:3].tolist(), x.tolist()), ([123456789012, 4, 4], [13, 4, 0, 0]))
    run(asm_tile, x=x, out=out)
    check("asm_tile", out[:4].tolist(), x.tolist())
    assembly.register("my.double $0, $1;", lambda backend, inputs: [inputs[0] * 2])
    run(asm_own, x=x, out=out)
    check("asm_registered", out[0].item(), 26)
    try:
        run(asm_unknown, x=x)
        print("asm_unknown nothing raised")
    except Unsupported as error:
        check("asm_unknown", str(error).startswith("inline assembly 'frobnicate.u32 $0, 1' has no emulation"), True)
    extern.register("my_own_function", lambda backend, args: args[0] + 100)
    x, f = torch.zeros(64, dtype=torch.int32), torch.tensor([4.0, 9.0, 16.0, 25.0])
    seen = run(externs, x=x, f=f, BIG=1)
    p = x.data_ptr()
    check("extern", [c for c in seen.calls if c[0] not in ("load", "store")], [
        ("my_pe",), ("put", p, p + 64, 64, 1, None, False, True), ("put", p, p + 64, 64, 1, None, True, False),
        ("get", p, p + 64, 64, 1, True, True), ("put", p, p + 64, 64, 1, Signal(p + 128, 9, True), False, True), ("fence",),
        ("signal", Signal(p, 4, False), 1), ("quiet",), ("wait_until", p, np.dtype("u8"), Compare(3), 6),
        ("wait_until", p, np.dtype("i4"), Compare.EQ, -2),
    ])  # fmt: skip
    check("extern_values", (x[:2].tolist(), f.tolist()), ([3, 103], [2.0, 3.0, 4.0, 5.0]))


def arguments() -> None:
    for name, args in (("unknown", {"x": 1, "y": 2}), ("missing", {})):
        try:
            interpreter.prepare(plain, args)
            print(f"argument_{name} nothing raised")
        except EmulatorError as error:
            check(f"argument_{name}", name in str(error) and "allowed: ['x']" in str(error), True)


if __name__ == "__main__":
    interpreter.install()
    interpreter.install()  # twice is once
    memory()
    foreign_code()
    arguments()

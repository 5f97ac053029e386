"""Compares interpreted kernels with torch; prints `check ok` or `check <difference>` a line. Started by test_numerics.py."""

import torch
import triton
import triton.language as tl

from emulator import interpreter

TYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn, "i32": torch.int32, "i8": torch.int8,
}  # fmt: skip
N: tl.constexpr = tl.constexpr(256)


@triton.jit
def convert(x, out):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def binary(x, y, out, OP: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = (a / b).to(x.dtype.element_ty)
    elif OP == "min":
        c = tl.minimum(a, b).to(x.dtype.element_ty)
    elif OP == "max":
        c = tl.maximum(a, b).to(x.dtype.element_ty)
    elif OP == "less":
        c = ((a < b) & (b > 0)).to(x.dtype.element_ty)
    elif OP == "where":
        c = tl.where(a < b, a, b)
    elif OP == "fma":
        c = tl.fma(a, b, a)
    elif OP == "scalar":
        c = a * 1.5 + 0.25
    elif OP == "neg":
        c = -a
    else:
        c = tl.abs(a)
    tl.store(out + i, c)


@triton.jit
def multiply(a, b, out, M: tl.constexpr, OUT: tl.constexpr):
    i = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(out + i, tl.dot(tl.load(a + i), tl.load(b + i), out_dtype=OUT))


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def reduce(x, out, OP: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + i)
    rows = tl.arange(0, 16)
    if OP == "sum":
        tl.store(out + rows, tl.sum(a, axis=1))
    elif OP == "maximum":
        tl.store(out + rows, tl.max(a, axis=1))
    elif OP == "argmax":
        tl.store(out + rows, tl.argmax(a, axis=1))
    elif OP == "product":
        tl.store(out + rows, tl.reduce(a, 1, times))
    else:
        tl.store(out + i, tl.cumsum(a, axis=1))


@triton.jit
def accumulate(x, out):
    i = tl.arange(0, N)
    tl.atomic_add(out + i % 64, tl.load(x + i))


@triton.jit
def failing(x):
    tl.device_assert(tl.load(x) > 0, "must be positive")


@triton.jit
def ranged(x, out):
    total = 0
    for i in range(tl.load(x)):
        total += i
    tl.store(out, total)


@triton.jit
def through_descriptor(x, out):
    source = tl.make_tensor_descriptor(x, shape=[16, 16], strides=[16, 1], block_shape=[8, 16])
    target = tl.make_tensor_descriptor(out, shape=[16, 16], strides=[16, 1], block_shape=[8, 16])
    target.store([8, 0], source.load([0, 0]) * 2)


def check(name: str, got: torch.Tensor, want: torch.Tensor, tolerance: float = 0.0) -> None:
    """Bit for bit unless a tolerance (relative to the largest wanted value) is given. NaN equals NaN."""
    a, b = got.double(), want.to(got.dtype).double()
    if tolerance:
        good = bool((a - b).abs().max() <= tolerance * b.abs().max())
    else:
        good = torch.equal(a.nan_to_num(7e77, 8e88, -8e88), b.nan_to_num(7e77, 8e88, -8e88))
    wrong = int((a != b).sum())
    print(
        name,
        "ok" if good else f"{wrong} of {a.numel()} differ, first {a[a != b][:3].tolist()} for {b[a != b][:3].tolist()}",
    )


def values(t: torch.dtype, seed: int) -> torch.Tensor:
    """256 values over many magnitudes, ties of rounding among them; for 8-bit types every bit pattern."""
    if t.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(t)
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(256, generator=g, dtype=torch.float64) * torch.pow(
        2.0, torch.randint(-12, 7, (256,), generator=g).double()
    )
    x[::7] = torch.round(x[::7] * 16) / 16 + 2.0**-8  # ties
    if t == torch.int32:
        return (x * 1000).to(t)
    x[:6] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e30])
    return x.to(t)


def casts() -> None:
    for a in ("f32", "f16", "bf16", "f64", "e5m2", "e4m3", "i32"):
        for b in ("f32", "f16", "bf16", "e5m2", "e4m3", "i32"):
            if (a in ("e5m2", "e4m3") and b not in ("f32", "f16", "bf16")) or (
                a == "i32" and b not in ("f32", "f16", "bf16")
            ):
                continue
            x = values(TYPES[a], 1)
            if b == "i32":
                x = x.nan_to_num(0, 0, 0).clamp(-6e4, 6e4)
            if b in ("e5m2", "e4m3"):
                x = x.clamp(-400, 400)  # beyond, torch gives NaN and hardware saturates
            out = torch.empty(256, dtype=TYPES[b])
            convert[(1,)](x, out)
            check(f"cast:{a}->{b}", out, x.float().to(TYPES[b]) if b in ("e5m2", "e4m3", "bf16") else x.to(TYPES[b]))


def arithmetic() -> None:
    for name in ("f32", "f16", "bf16"):
        t = TYPES[name]
        x, y = values(t, 2), values(t, 3).roll(40)
        want = {
            "add": x + y, "sub": x - y, "mul": x * y, "div": (x.float() / y.float()).to(t),
            "min": torch.fmin(x, y), "max": torch.fmax(x, y), "less": ((x < y) & (y > 0)).to(t), "where": torch.where(x < y, x, y),
            "fma": (x.double() * y.double() + x.double()).float().to(t), "neg": -x, "scalar": x * 1.5 + 0.25, "abs": x.abs(),
        }  # fmt: skip
        for op, expected in want.items():
            out = torch.empty(256, dtype=t)
            binary[(1,)](x, y, out, op)
            check(f"{op}:{name}", out, expected)
    x = torch.full((256,), float("nan"))
    out = torch.empty(256)
    binary[(1,)](x, torch.ones(256), out, "min")
    check("nan_min:f32", out, torch.ones(256))


def dots() -> None:
    g = torch.Generator().manual_seed(5)
    for name in ("f32", "f16", "bf16", "e5m2", "e4m3", "i8"):
        a, b = torch.randn(32, 32, generator=g), torch.randn(32, 32, generator=g)
        a, b = (
            ((a * 20).to(torch.int8), (b * 20).to(torch.int8))
            if name == "i8"
            else (a.to(TYPES[name]), b.to(TYPES[name]))
        )
        out = torch.empty(32, 32, dtype=torch.int32 if name == "i8" else torch.float32)
        multiply[(1,)](a, b, out, 32, tl.int32 if name == "i8" else tl.float32)
        check(f"dot:{name}", out, a.double() @ b.double(), 0 if name == "i8" else 1e-6)
    a = torch.full((32, 32), 0.125, dtype=torch.float16)
    b = torch.full((32, 32), 8.0, dtype=torch.float16)
    a[:, 0], b[0, :] = 64, 32  # 2048 + 1 + 1 ...: lost if accumulated in float16
    out = torch.empty(32, 32, dtype=torch.float16)
    multiply[(1,)](a, b, out, 32, tl.float16)
    check("dot_f16_out:f16", out, (a.double() @ b.double()).half())


def reductions() -> None:
    for name in ("f32", "f16", "bf16"):
        t = TYPES[name]
        x = torch.randn(16, 16, generator=torch.Generator().manual_seed(6)).to(t)
        wide = x.double()
        eps = 8 * torch.finfo(t).eps
        for op, expected, kind in (
            ("sum", wide.sum(1), t), ("maximum", wide.amax(1), t), ("argmax", wide.argmax(1), torch.int32),
            ("cumsum", wide.cumsum(1), t), ("product", wide.prod(1), t),
        ):  # fmt: skip
            out = torch.empty(expected.shape, dtype=kind)
            reduce[(1,)](x, out, op)
            check(f"{op}:{name}", out, expected, 0 if op in ("maximum", "argmax") else eps)
        ones = torch.ones(256, dtype=t) * 0.5
        total = torch.zeros(64, dtype=t)
        accumulate[(1,)](ones, total)
        check(f"atomic_add:{name}", total, torch.full((64,), 2.0))


def rest() -> None:
    try:
        failing[(1,)](torch.zeros(1))
        print("device_assert:f32 nothing raised")
    except interpreter.stock.InterpreterError as error:
        print("device_assert:f32", "ok" if "must be positive" in str(error) else repr(error))
    out = torch.zeros(1, dtype=torch.int32)
    ranged[(1,)](torch.tensor([5], dtype=torch.int32), out)
    check("range_tensor:i32", out, torch.tensor([10]))
    x = torch.randn(16, 16).half()
    y = torch.zeros(16, 16).half()
    through_descriptor[(1,)](x, y)
    check("descriptor:f16", y, torch.cat([torch.zeros(8, 16).half(), x[:8] * 2]))
    out = torch.zeros(256)
    convert[(1,)](torch.ones(256), out)
    check("stock_launch:f32", out, torch.ones(256))


if __name__ == "__main__":
    interpreter.install()
    casts()
    arithmetic()
    dots()
    reductions()
    rest()

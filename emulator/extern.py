"""External functions that kernels call by symbol: NVSHMEM's device side, the usual libdevice / OCML mathematics, and yours."""

import math
import re
from collections.abc import Callable

import numpy as np

from .backend import Backend, Compare, Signal
from .errors import Unsupported

Handler = Callable[[Backend | None, list[np.ndarray]], np.ndarray | int]

_registered: dict[str, Handler] = {}
_resolved: dict[str, Handler] = {}


def register(symbol: str, handler: Handler) -> None:
    """Let `handler(backend, args) -> result` emulate `symbol`; args are arrays (scalars of shape `(1,)`), pointers are uint64 or int64."""
    _registered[symbol] = handler


def execute(backend: Backend | None, symbol: str, args: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Call `symbol`; the result has `dtype` and the shape of the arguments. Raises `Unsupported` for unknown symbols."""
    handler = _registered.get(symbol) or _resolved.get(symbol)
    if handler is None:
        handler = _mathematics(symbol) or _shmem(symbol)
        if handler is None:
            raise Unsupported(f"external function {symbol!r} has no emulation; emulator.extern.register takes one")
        _resolved[symbol] = handler
    result = handler(backend, args)
    shape = args[0].shape if args else (1,)
    return np.broadcast_to(np.asarray(result), shape).astype(dtype)


# ---- mathematics
_MATH: dict[str, Callable] = {
    name: getattr(np, name)
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "floor", "ceil", "trunc", "rint", "fabs", "fmin", "fmax", "fmod", "hypot", "copysign", "isnan", "isinf",
    )
} | {
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": np.reciprocal, "pow": np.power, "powf": np.power, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp10": lambda x: np.power(10.0, x), "fma": lambda x, y, z: x * y + z, "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip


def _mathematics(symbol: str) -> Handler | None:
    match = re.fullmatch(r"__nv_(?:fast_)?(\w+?)f?|__ocml_(\w+)_f(?:16|32|64)", symbol)
    function = _MATH.get(match[1] or match[2]) if match else None
    if function is None:
        return None

    def call(backend: Backend | None, args: list[np.ndarray]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(*args)

    return call


# ---- NVSHMEM (and rocSHMEM, which uses the same names)
_SYMBOL = re.compile(r"(?:nvshmemx?|rocshmem(?:_ctx)?)_(\w+?)((?:_nbi)?)((?:_block|_warp|_wg|_wave)?)")
_WORDS = {
    "int": "i4",
    "uint": "u4",
    "long": "i8",
    "longlong": "i8",
    "uint64": "u8",
    "int64": "i8",
    "uint32": "u4",
    "int32": "i4",
}


def _one(x: np.ndarray) -> int:
    """Scalar argument. These calls are made once a work-group: a tile of pointers has no meaning here."""
    if x.size != 1:
        raise Unsupported(f"an NVSHMEM call got a tile of shape {x.shape}; allowed: scalars")
    return int(x.reshape(-1)[0])


def _signal(address: np.ndarray, value: np.ndarray, op: np.ndarray) -> Signal:
    kind = _one(op)
    if kind not in (0, 5, 9, 10):
        raise Unsupported(
            f"signal operation {kind}; allowed: NVSHMEM_SIGNAL_SET (0 or 9), NVSHMEM_SIGNAL_ADD (5 or 10)"
        )
    return Signal(_one(address), _one(value) & (1 << 64) - 1, kind in (5, 10))


def _shmem(symbol: str) -> Handler | None:
    match = _SYMBOL.fullmatch(symbol)
    if match is None:
        return None
    name, blocking, block = match[1], not match[2], bool(match[3])
    calls: dict[str, Callable] = {
        "my_pe": lambda nic, a: nic.my_pe(),
        "n_pes": lambda nic, a: nic.n_pes(),
        "fence": lambda nic, a: nic.fence(),
        "quiet": lambda nic, a: nic.quiet(),
        "barrier_all": lambda nic, a: nic.barrier_all(),
        "putmem": lambda nic, a: nic.put(*map(_one, a), None, blocking, block),
        "getmem": lambda nic, a: nic.get(*map(_one, a), blocking, block),
        "putmem_signal": lambda nic, a: nic.put(*map(_one, a[:3]), _one(a[6]), _signal(*a[3:6]), blocking, block),
        "signal_op": lambda nic, a: nic.signal(_signal(*a[:3]), _one(a[3])),
        "signal_wait_until": lambda nic, a: nic.wait_until(_one(a[0]), np.dtype("u8"), Compare(_one(a[1])), _one(a[2])),
    }
    waits = re.fullmatch(r"(\w+)_wait_until", name)
    if waits and waits[1] in _WORDS:
        dtype = np.dtype(_WORDS[waits[1]])
        calls[name] = lambda nic, a: nic.wait_until(_one(a[0]), dtype, Compare(_one(a[1])), _one(a[2]))
    call = calls.get(name)
    if call is None:
        return None

    def run(backend: Backend | None, args: list[np.ndarray]) -> int:
        if backend is None:
            raise Unsupported(f"{symbol} outside a launch of the emulator; allowed: kernels launched by symm.launch")
        return call(backend.nic, args) or 0

    return run

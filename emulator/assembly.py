"""Inline assembly of kernels: a small executor for the instructions that communication code uses, and a registry for the rest.

PTX: `ld`, `st`, `atom`, `red` on global memory, fences, block barriers, timers, `nanosleep`, `mov`, bulk-copy waits, register
declarations. AMDGPU: `s_barrier`, `s_waitcnt`, L2 write-back and invalidate, `s_sleep`, `s_memrealtime`, moves. An instruction
that only some threads of a work-group would execute (predicates) is not known. `register` takes whole texts for anything else.
"""

import re
from collections.abc import Callable

import numpy as np

from .backend import Backend, Lanes, Rmw, Scope, Sem
from .errors import Unsupported

Operands = list[np.ndarray]
Handler = Callable[[Backend | None, Operands], Operands]

_registered: dict[str, Handler] = {}
_parsed: dict[str, list[str]] = {}


def _clean(asm: str) -> str:
    return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", asm, flags=re.DOTALL).split())


def register(asm: str, handler: Handler) -> None:
    """Let `handler(backend, inputs) -> outputs` (arrays, one a register) emulate a whole assembly text; white space does not count.

    `backend` is None outside emulated launches. Outputs are cast to the types that the kernel declares.
    """
    _registered[_clean(asm)] = handler


def execute(backend: Backend | None, asm: str, inputs: Operands, outputs: list[np.dtype]) -> Operands:
    """Run one inline assembly; returns one array an output. Raises `Unsupported` for unknown instructions."""
    handler = _registered.get(_clean(asm)) if _registered else None
    if handler is not None:
        results = handler(backend, inputs)
    else:
        statements = _parsed.get(asm)
        if statements is None:
            text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", asm, flags=re.DOTALL)
            statements = _parsed[asm] = [
                s for s in (" ".join(p.split()) for p in re.split(r"[;\n{}](?![^\[]*\])", text)) if s
            ]
        machine = _Machine(backend, asm, inputs, len(outputs))
        for statement in statements:
            machine.step(statement)
        results = machine.results
    shape = inputs[0].shape if inputs else (1,)
    zero = np.zeros(1, np.int64)
    return [
        np.broadcast_to(zero if r is None else r, shape).astype(d) if r is None or r.dtype.kind != "u" or d.itemsize != r.itemsize
        else np.ascontiguousarray(np.broadcast_to(r, shape)).view(d)
        for r, d in zip(results, outputs, strict=True)
    ]  # fmt: skip


_SEM = {
    "relaxed": Sem.RELAXED,
    "acquire": Sem.ACQUIRE,
    "release": Sem.RELEASE,
    "acq_rel": Sem.ACQ_REL,
    "weak": Sem.PLAIN,
}
_SCOPE = {"cta": Scope.CTA, "cluster": Scope.GPU, "gpu": Scope.GPU, "gl": Scope.GPU, "sys": Scope.SYS}
_RMW = {"add": Rmw.ADD, "exch": Rmw.XCHG, "and": Rmw.AND, "or": Rmw.OR, "xor": Rmw.XOR, "min": Rmw.MIN, "max": Rmw.MAX}
_TYPE = re.compile(r"^([busf])(8|16|32|64)$")
_NOTHING = (
    ".reg", "s_nop", "s_setprio", "buffer_inv", "buffer_gl", "cp.async.bulk.commit_group", "fence.proxy", "bar.warp.sync",
    "griddepcontrol", "s_wait_", "prefetch", "buffer_wbinvl1",
)  # fmt: skip


class _Machine:
    """Registers of one execution; `results` are its outputs."""

    def __init__(self, backend: Backend | None, asm: str, inputs: Operands, outputs: int):
        self.backend, self.asm = backend, asm
        self.registers: dict[str, np.ndarray] = {f"${outputs + i}": x for i, x in enumerate(inputs)}
        self.outputs = outputs

    @property
    def results(self) -> list[np.ndarray | None]:
        return [self.registers.get(f"${i}") for i in range(self.outputs)]

    def unknown(self, statement: str) -> Unsupported:
        return Unsupported(f"inline assembly {statement!r} has no emulation; emulator.assembly.register takes one")

    def step(self, statement: str) -> None:
        name, _, rest = statement.partition(" ")
        operands = [o.strip() for o in re.split(r",(?![^\[]*\])", rest)] if rest else []
        parts = name.split(".")
        if name.startswith(_NOTHING) or name.endswith(":"):
            return
        method = getattr(self, "do_" + re.sub(r"\W", "_", parts[0]), None)
        if method is None or (name == "cp" and len(parts) < 2):
            raise self.unknown(statement)
        method(parts[1:], operands, statement)

    def value(self, text: str) -> np.ndarray:
        """A register, an immediate, or a special register."""
        text = text.strip("{} ")
        if text in self.registers:
            return self.registers[text]
        if text.startswith(("%globaltimer", "%clock")):
            return np.array([self.backend.clock() if self.backend else 0], np.int64)
        if text in ("%laneid", "%tid.x", "%tid.y", "%tid.z"):  # thread 0 speaks for the work-group
            return np.zeros(1, np.int64)
        if text in ("%smid", "%ctaid.x"):
            return np.array([self.backend.program_id(0) if self.backend else 0], np.int64)
        try:
            return np.array([int(text, 0)], np.int64)
        except ValueError:
            raise self.unknown(text) from None

    def address(self, text: str) -> np.ndarray:
        inner = text.strip("[] ")
        base, _, offset = inner.partition("+")
        found = self.value(base.strip()).astype(np.uint64)
        return found + np.uint64(int(offset.strip().strip("$") or "0", 0) if offset else 0)

    def typed(self, parts: list[str], statement: str) -> np.dtype:
        for part in reversed(parts):
            match = _TYPE.match(part)
            if match:
                kind = {"b": "u", "u": "u", "s": "i", "f": "f"}[match[1]]
                return np.dtype(f"{kind}{int(match[2]) // 8}")
        raise self.unknown(statement)

    def order(self, parts: list[str], default: Sem) -> tuple[Sem, Scope]:
        if "volatile" in parts or "mmio" in parts:
            return Sem.RELAXED, Scope.SYS
        sem = next((_SEM[p] for p in parts if p in _SEM), default)
        return sem, next((_SCOPE[p] for p in parts if p in _SCOPE), Scope.GPU)

    def cast(self, text: str, dtype: np.dtype, n: int) -> np.ndarray:
        value = self.value(text)
        if value.dtype.itemsize == dtype.itemsize and dtype.kind != "f":
            value = np.ascontiguousarray(value).view(dtype)
        return np.broadcast_to(value.reshape(-1), n).astype(dtype)

    # ---- memory
    def do_ld(self, parts: list[str], operands: list[str], statement: str) -> None:
        dtype, (sem, scope), address = (
            self.typed(parts, statement),
            self.order(parts, Sem.PLAIN),
            self.address(operands[1]),
        )
        flat = address.reshape(-1)
        values = (
            self.backend.load(flat, dtype, sem, scope, Lanes(address.shape, None))
            if self.backend
            else np.zeros(flat.size, dtype)
        )
        self.registers[operands[0]] = values.reshape(address.shape)

    def do_st(self, parts: list[str], operands: list[str], statement: str) -> None:
        dtype, (sem, scope), address = (
            self.typed(parts, statement),
            self.order(parts, Sem.PLAIN),
            self.address(operands[0]),
        )
        flat = address.reshape(-1)
        if self.backend:
            self.backend.store(flat, self.cast(operands[1], dtype, flat.size), sem, scope, Lanes(address.shape, None))

    def _atomic(self, parts: list[str], operands: list[str], statement: str) -> np.ndarray:
        dtype, (sem, scope), address = (
            self.typed(parts, statement),
            self.order(parts, Sem.RELAXED),
            self.address(operands[0]),
        )
        flat, lanes = address.reshape(-1), Lanes(address.shape, None)
        if self.backend is None:
            return np.zeros(address.shape, dtype)
        values = [self.cast(o, dtype, flat.size) for o in operands[1:]]
        if "cas" in parts:
            return self.backend.atomic_cas(flat, values[0], values[1], sem, scope, lanes).reshape(address.shape)
        op = next((_RMW[p] for p in parts if p in _RMW), None)
        if op is None:
            raise self.unknown(statement)
        if op is Rmw.ADD and dtype.kind == "f":
            op = Rmw.FADD
        elif op in (Rmw.MIN, Rmw.MAX) and dtype.kind == "u":
            op = Rmw.UMIN if op is Rmw.MIN else Rmw.UMAX
        return self.backend.atomic_rmw(op, flat, values[0], sem, scope, lanes).reshape(address.shape)

    def do_atom(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.registers[operands[0]] = self._atomic(parts, operands[1:], statement)

    def do_red(self, parts: list[str], operands: list[str], statement: str) -> None:
        self._atomic(parts, operands, statement)

    # ---- order
    def do_fence(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.fence(next((_SCOPE[p] for p in parts if p in _SCOPE), Scope.SYS), "sc" in parts)

    def do_membar(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.fence(_SCOPE[parts[-1]], True)

    def do_bar(self, parts: list[str], operands: list[str], statement: str) -> None:
        if parts[:1] not in (["sync"], ["red"], ["cta"]):
            raise self.unknown(statement)
        if self.backend:
            self.backend.barrier()

    do_barrier = do_bar

    def do_s_barrier(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.barrier()

    def do_s_waitcnt(self, parts: list[str], operands: list[str], statement: str) -> None:
        # Stores of this wave have been performed; how far they are visible is the assembly lint's business.
        if self.backend and "vmcnt(0)" in statement:
            self.backend.fence(Scope.SYS, False)

    def do_buffer_wbl2(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.fence(Scope.SYS, False)

    def do_cp(self, parts: list[str], operands: list[str], statement: str) -> None:
        if "wait_group" not in parts and "wait_all" not in parts:
            raise self.unknown(statement)
        if self.backend:
            self.backend.wait_async("read" in parts)

    # ---- time and moves
    def do_nanosleep(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.pause(int(self.value(operands[0]).reshape(-1)[0]))

    def do_s_sleep(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.pause(64 * int(operands[0], 0))

    def do_mov(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.registers[operands[0]] = self.value(operands[1])

    do_v_mov_b32 = do_s_mov_b32 = do_s_mov_b64 = do_mov

    def do_s_memrealtime(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.registers[operands[0]] = self.value("%globaltimer")

    do_s_memtime = do_s_memrealtime

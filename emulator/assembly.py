"""Inline assembly of kernels: a small executor for the instructions that communication code uses, and a registry for the rest.

PTX: `ld`, `st`, `atom`, `red` on global memory, fences, block barriers, timers, `nanosleep`, `mov`, `setp`, sums, predicates, branches,
bulk-copy waits, register declarations. AMDGPU: `s_barrier`, `s_waitcnt`, L2 write-back and invalidate, `s_sleep`, `s_memrealtime`, moves.
Thread 0 speaks for the work-group (`%tid.x` is 0). `register` takes whole texts for anything else.
"""

import re
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from .backend import Backend, Lanes, Rmw, Scope, Sem
from .errors import Unsupported

Operands = list[np.ndarray]
Handler = Callable[[Backend | None, Operands], Operands]

_registered: dict[str, Handler] = {}
_parsed: dict[str, tuple[list[str], dict[str, int]]] = {}


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
    shape = inputs[0].shape if inputs else (1,)
    if handler is not None:
        results = handler(backend, inputs)
    else:
        machine = Machine(backend, asm, inputs, len(outputs), shape)
        machine.run()
        results = machine.results
    zero = np.zeros(1, np.int64)
    return [
        np.broadcast_to(zero if r is None else r, shape).astype(d) if r is None or r.dtype.kind != "u" or d.itemsize != r.itemsize
        else np.ascontiguousarray(np.broadcast_to(r, shape)).view(d)
        for r, d in zip(results, outputs, strict=True)
    ]  # fmt: skip


def machine_of(frame: FrameType) -> "Machine | None":
    """The machine whose run this frame is."""
    return frame.f_locals["self"] if frame.f_code is Machine.run.__code__ else None


def _parse(asm: str) -> tuple[list[str], dict[str, int]]:
    """(statements, label -> number of the statement behind it)."""
    if asm not in _parsed:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", asm, flags=re.DOTALL)
        text = re.sub(r"^(\s*[\w$%]+:)", r"\1;", text.replace("{", "{\n").replace(";", ";\n"), flags=re.MULTILINE)
        statements: list[str] = []
        labels: dict[str, int] = {}
        for part in re.split(r"[;\n{}](?![^\[]*\])", text):
            statement = " ".join(part.split())
            if statement.endswith(":"):
                labels[statement[:-1]] = len(statements)
            elif statement and not statement.startswith(_NOTHING):
                statements.append(statement)
        _parsed[asm] = statements, labels
    return _parsed[asm]


_SEM = {
    "relaxed": Sem.RELAXED,
    "acquire": Sem.ACQUIRE,
    "release": Sem.RELEASE,
    "acq_rel": Sem.ACQ_REL,
    "weak": Sem.PLAIN,
}
_SCOPE = {"cta": Scope.CTA, "cluster": Scope.GPU, "gpu": Scope.GPU, "gl": Scope.GPU, "sys": Scope.SYS}
_RMW = {"add": Rmw.ADD, "exch": Rmw.XCHG, "and": Rmw.AND, "or": Rmw.OR, "xor": Rmw.XOR, "min": Rmw.MIN, "max": Rmw.MAX}
_COMPARE: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_BINARY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_TYPE = re.compile(r"^([busf])(8|16|32|64)$")
# What every thread of a work-group does together: not known for thread 0 alone.
_BY_ALL = ("fence", "membar", "bar", "barrier", "s_barrier", "cp")
_NOTHING = (
    ".reg", ".pragma", "s_nop", "s_setprio", "buffer_inv", "buffer_gl", "cp.async.bulk.commit_group", "fence.proxy", "bar.warp.sync",
    "griddepcontrol", "s_wait_", "prefetch", "buffer_wbinvl1",
)  # fmt: skip


class Machine:
    """Registers of one execution; `results` are its outputs. Lanes that branch differently wait for those furthest behind.

    Attributes:
        asm: the text.
        position: number of the statement under execution.
        active: which lanes execute it (bool, shape of the tile); None: all.
        alone: whether thread 0 executes it without the others, because of a predicate or branch that depends on `%tid`.
    """

    def __init__(self, backend: Backend | None, asm: str, inputs: Operands, outputs: int, shape: tuple[int, ...]):
        self.backend, self.asm, self.shape = backend, asm, shape
        self.registers: dict[str, np.ndarray] = {f"${outputs + i}": x for i, x in enumerate(inputs)}
        self.outputs = outputs
        self.position, self.alone = 0, False
        self.active: np.ndarray | None = None
        self._next = np.zeros(shape, np.int64)
        self._alone_until = 0
        self._by_thread: set[str] = set()

    @property
    def results(self) -> list[np.ndarray | None]:
        return [self.registers.get(f"${i}") for i in range(self.outputs)]

    @property
    def content(self) -> tuple:
        """All of its state, hashable."""
        return (
            self.position,
            self._next.tobytes(),
            tuple((n, r.dtype.str, r.tobytes()) for n, r in sorted(self.registers.items())),
        )

    def run(self) -> None:
        statements, labels = _parse(self.asm)
        while (position := int(self._next.min())) < len(statements):
            self.position, here = position, self._next == position
            self._next[here] = position + 1
            statement, self.alone = statements[position], position < self._alone_until
            predicate = re.match(r"@(!?)(\S+) (.*)", statement)
            by_thread = predicate is not None and predicate[2] in self._by_thread
            if predicate:
                here = here & (np.broadcast_to(self.value(predicate[2]) != 0, self.shape) != bool(predicate[1]))
                statement = predicate[3]
            self.active = None if here.all() else here
            if statement.startswith("bra"):
                target = labels.get(statement.split()[-1])
                if target is None:
                    raise self.unknown(statement)
                self._next[here] = target
                if by_thread and not here.any():  # the other threads jump over what follows
                    self._alone_until = max(self._alone_until, target)
            elif here.any():
                self.alone = self.alone or by_thread
                self._follow(statement)
                self.step(statement)

    def _follow(self, statement: str) -> None:
        """Keep track of registers whose values differ from thread to thread."""
        target, *sources = re.findall(r"[%$][\w.]+", statement) or [""]
        if any(r.startswith(("%tid", "%laneid")) or r in self._by_thread for r in sources):
            self._by_thread.add(target)
        else:
            self._by_thread.discard(target)

    def unknown(self, statement: str) -> Unsupported:
        return Unsupported(f"inline assembly {statement!r} has no emulation; emulator.assembly.register takes one")

    def step(self, statement: str) -> None:
        name, _, rest = statement.partition(" ")
        operands = [o.strip() for o in re.split(r",(?![^\[]*\])", rest)] if rest else []
        parts = name.split(".")
        method = getattr(self, "do_" + re.sub(r"\W", "_", parts[0]), None)
        if method is None or (name == "cp" and len(parts) < 2) or (self.alone and parts[0] in _BY_ALL):
            raise self.unknown(statement)
        method(parts[1:], operands, statement)

    def assign(self, register: str, value: np.ndarray) -> None:
        """To the lanes that execute the statement."""
        if self.active is not None:
            before = self.registers.get(register, np.zeros(1, value.dtype))
            if before.dtype.itemsize == value.dtype.itemsize:
                before = before.view(value.dtype)
            value = np.where(self.active, value, before).astype(value.dtype)
        self.registers[register] = value

    def chosen(self, values: np.ndarray) -> np.ndarray:
        """1-D, of the lanes that execute the statement."""
        return values.reshape(-1) if self.active is None else np.broadcast_to(values, self.shape)[self.active]

    def back(self, values: np.ndarray, like: np.ndarray) -> np.ndarray:
        """The reverse: results of these lanes in the tile's shape."""
        if self.active is None:
            return values.reshape(like.shape)
        tile = np.zeros(self.shape, values.dtype)
        tile[self.active] = values
        return tile

    def lanes(self, like: np.ndarray) -> Lanes:
        return Lanes(like.shape if self.active is None else self.shape, self.active, True, self.alone)

    def value(self, text: str) -> np.ndarray:
        """A register, an immediate, or a special register."""
        text = text.strip("{} ")
        if text in self.registers:
            return self.registers[text]
        if text.startswith(("%globaltimer", "%clock")):
            return np.array([self.backend.clock() if self.backend else 0], np.int64)
        if text in ("%laneid", "%tid.x", "%tid.y", "%tid.z"):  # thread 0 speaks for the work-group
            return np.zeros(1, np.int64)
        if text in ("%ntid.x", "%ntid.y", "%ntid.z"):
            return np.ones(1, np.int64)
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

    def cast(self, text: str, dtype: np.dtype) -> np.ndarray:
        value = self.value(text)
        if value.dtype.itemsize == dtype.itemsize and dtype.kind != "f":
            value = np.ascontiguousarray(value).view(dtype)
        return value.astype(dtype)

    def operand(self, text: str, dtype: np.dtype, n: int) -> np.ndarray:
        return np.array(np.broadcast_to(self.chosen(self.cast(text, dtype)), n))

    # ---- memory
    def do_ld(self, parts: list[str], operands: list[str], statement: str) -> None:
        dtype, (sem, scope) = self.typed(parts, statement), self.order(parts, Sem.PLAIN)
        address = self.address(operands[1])
        flat = self.chosen(address)
        values = np.zeros(flat.size, dtype)
        if self.backend:
            values = self.backend.load(flat, dtype, sem, scope, self.lanes(address))
        self.assign(operands[0], self.back(values, address))

    def do_st(self, parts: list[str], operands: list[str], statement: str) -> None:
        dtype, (sem, scope) = self.typed(parts, statement), self.order(parts, Sem.PLAIN)
        address = self.address(operands[0])
        flat = self.chosen(address)
        if self.backend:
            self.backend.store(flat, self.operand(operands[1], dtype, flat.size), sem, scope, self.lanes(address))

    def _atomic(self, parts: list[str], operands: list[str], statement: str) -> np.ndarray:
        dtype, (sem, scope) = self.typed(parts, statement), self.order(parts, Sem.RELAXED)
        address = self.address(operands[0])
        if self.backend is None:
            return np.zeros(address.shape, dtype)
        flat = self.chosen(address)
        values = [self.operand(o, dtype, flat.size) for o in operands[1:]]
        if "cas" in parts:
            old = self.backend.atomic_cas(flat, values[0], values[1], sem, scope, self.lanes(address))
            return self.back(old, address)
        op = next((_RMW[p] for p in parts if p in _RMW), None)
        if op is None:
            raise self.unknown(statement)
        if op is Rmw.ADD and dtype.kind == "f":
            op = Rmw.FADD
        elif op in (Rmw.MIN, Rmw.MAX) and dtype.kind == "u":
            op = Rmw.UMIN if op is Rmw.MIN else Rmw.UMAX
        return self.back(self.backend.atomic_rmw(op, flat, values[0], sem, scope, self.lanes(address)), address)

    def do_atom(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.assign(operands[0], self._atomic(parts, operands[1:], statement))

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

    # ---- arithmetic, which loops and predicates need
    def do_setp(self, parts: list[str], operands: list[str], statement: str) -> None:
        compare, dtype = _COMPARE.get(parts[0]), self.typed(parts, statement)
        if compare is None or len(operands) != 3:
            raise self.unknown(statement)
        self.assign(operands[0], compare(self.cast(operands[1], dtype), self.cast(operands[2], dtype)))

    def _binary(self, parts: list[str], operands: list[str], statement: str) -> None:
        function, dtype = _BINARY[statement.partition(".")[0]], self.typed(parts, statement)
        self.assign(operands[0], function(self.cast(operands[1], dtype), self.cast(operands[2], dtype)))

    do_add = do_sub = do_and = do_or = do_xor = _binary

    # ---- time and moves
    def do_nanosleep(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.pause(int(self.value(operands[0]).reshape(-1)[0]))

    def do_s_sleep(self, parts: list[str], operands: list[str], statement: str) -> None:
        if self.backend:
            self.backend.pause(64 * int(operands[0], 0))

    def do_mov(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.assign(operands[0], self.value(operands[1]))

    do_v_mov_b32 = do_s_mov_b32 = do_s_mov_b64 = do_mov

    def do_s_memrealtime(self, parts: list[str], operands: list[str], statement: str) -> None:
        self.assign(operands[0], self.value("%globaltimer"))

    do_s_memtime = do_s_memrealtime

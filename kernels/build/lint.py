"""Lint of the generated assembly: does it still order what the protocol needs ordered?

Compilers drop and move things (`kernels/shmem.py` names two cases), so the rules are checked where they must hold in the
end, on every path of the control flow. A *flag* is an atomic exchange, or any atomic or store with release semantics at
system scope (AMD: an atomic behind an L2 write-back); a *data store* is any other store to global memory; a *poll* is a global read on which the exit of an innermost
loop depends. Other atomics (the relaxed count of `shmem.arrive`) are neither. Fences apart from the flag's own release are
not understood: a kernel that releases by a separate fence has no flag here, and fails.

NVIDIA (PTX ISA, "Memory Consistency Model"):
* between a data store and a flag: a block barrier (bar.sync), since only one thread releases, for all of them;
* the flag: release (or acq_rel) at .sys; the poll: acquire at .sys;
* a bulk (TMA) store is asynchronous: cp.async.bulk.wait_group 0 before that barrier. The .read form waits only until its
  source has been read and says nothing about the destination.

AMD (AMDGPU backend guide, "Memory Model GFX90A" and "Memory Model GFX942"):
* between a data store and a flag: s_waitcnt vmcnt(0), then s_barrier, so that every wave waits for its own stores;
* between a data store and a flag: buffer_wbl2 (gfx942: sc0 sc1), then s_waitcnt vmcnt(0): the L2 write-back has finished;
* the flag at system scope (gfx942: sc1); the poll bypasses the caches (gfx90a: glc; gfx942: sc0 sc1) and is followed, after
  s_waitcnt vmcnt(0), by buffer_invl2 and buffer_wbinvl1_vol (gfx942: buffer_inv sc0 sc1).

Known false alarm: a store by the flag's own thread, between barrier and flag, needs no barrier, yet is reported.
"""

import re
from collections import deque
from dataclasses import dataclass

from .assembly import Instruction, Loop, Program, parse
from .targets import Target


@dataclass(frozen=True)
class Finding:
    """One broken rule: where in which kernel's assembly for which target, and what is missing."""

    kernel: str
    target: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.kernel} {self.target} line {self.line}: {self.message}"


@dataclass(frozen=True)
class Spin:
    """A wait loop in the assembly.

    `barrier_before`, `barrier_after`: on every path in the loop, a block barrier lies between entering it (or its last
    round) and the poll, and between the poll and leaving it. `lines`: (line, text) of the poll, the barriers and the shared
    memory accesses that publish the polled value, in program order.
    """

    line: int
    barrier_before: bool
    barrier_after: bool
    lines: tuple[tuple[int, str], ...]


def lint(assembly: str, target: Target, kernel: str, communicates: bool = True) -> list[Finding]:
    """Findings in one kernel's assembly, in line order; empty if it keeps the rules.

    `communicates`: the kernel is one that signals and waits, so that having no flag or no poll is a finding too.
    """
    program = parse(assembly, target.is_amd)
    rules = _Amd(target) if target.is_amd else _Nvidia(target)
    flags = rules.flags(program)
    found = _stores_before_flags(program, rules, flags)
    for index in flags:
        flag = program.instructions[index]
        found += [(flag.line, message) for message in rules.flag_scope(flag)]
    polls = 0
    for loop, poll in _polls(program, rules):
        polls += 1
        found += [(program.instructions[poll].line, message) for message in rules.poll(program, loop, poll)]
    if communicates and not flags:
        found.append((0, "no flag is released anywhere: peers would wait for ever"))
    if communicates and not polls:
        found.append((0, "no wait loop that reads a flag: results of peers would be used before they arrive"))
    return [Finding(kernel, target.name, line, message) for line, message in sorted(set(found))]


def spin_has_barriers(assembly: str, target: Target) -> list[Spin]:
    """The wait loops of one kernel, in program order, and whether each is bracketed by block barriers already.

    Where `barrier_after` holds, leaving out the kernel's own barrier behind the wait changes nothing on that target: the
    mutant is equivalent there.
    """
    program = parse(assembly, target.is_amd)
    rules = _Amd(target) if target.is_amd else _Nvidia(target)
    spins = []
    for loop, poll in _polls(program, rules):
        barriers = {i for i in loop.body if rules.is_barrier(program.instructions[i])}
        entry_free = loop.header not in barriers and (
            loop.header == poll or program.reaches(loop.header, poll, loop, barriers)
        )
        again_free = program.reaches(poll, poll, loop, barriers)
        shown = [
            i for i in loop.body
            if i == poll or i in barriers or ".shared" in program.instructions[i].opcode
            or program.instructions[i].opcode.startswith("ds_")
        ]  # fmt: skip
        lines = tuple((program.instructions[i].line, program.instructions[i].text) for i in shown)
        before = not entry_free and not again_free
        spins.append(Spin(program.instructions[poll].line, before, not program.leaves(poll, loop, barriers), lines))
    return spins


def _polls(program: Program, rules: "_Nvidia | _Amd") -> list[tuple[Loop, int]]:
    """(loop, index of the poll) of every innermost loop whose exit depends on a global read made in it."""
    return [
        (loop, index)
        for loop in program.innermost_loops
        for index in program.loop_inputs(loop)
        if rules.is_global_read(program.instructions[index])
    ]


# The state of the forward analysis: for each hazard of the rules, (level, line of the store). 0 is safe; paths join by the
# larger level, so that a hazard on any path counts.
State = tuple[tuple[int, int], ...]


def _stores_before_flags(program: Program, rules: "_Nvidia | _Amd", flags: set[int]) -> list[tuple[int, str]]:
    """(line, message) for every flag that a data store may reach without what must lie between."""
    clean: State = tuple((0, 0) for _ in rules.hazards)
    entering: dict[int, State] = {0: clean}
    todo = deque([0])
    while todo:
        index = todo.popleft()
        state = rules.after(program.instructions[index], entering[index])
        for target in program.following[index]:
            old = entering.get(target)
            new = state if old is None else tuple(max(a, b) for a, b in zip(old, state, strict=True))
            if new != old:
                entering[target] = new
                todo.append(target)
    return [
        (program.instructions[index].line, f"{messages[level]} between the store of line {line} and this flag")
        for index, state in entering.items()
        if index in flags
        for (level, line), messages in zip(state, rules.hazards, strict=True)
        if level
    ]


_NOT_GLOBAL = re.compile(r"\.(shared|local|param|const)\b")


class _Nvidia:
    """The rules for PTX."""

    hazards = (
        {1: "no bar.sync"},
        {1: "no bar.sync after cp.async.bulk.wait_group 0", 2: "no cp.async.bulk.wait_group 0 (.read is not enough)"},
    )

    def __init__(self, target: Target):
        self.target = target

    def is_barrier(self, i: Instruction) -> bool:
        return i.opcode.startswith(("bar.sync", "barrier.sync", "barrier.cta.sync")) and not i.predicated

    def flags(self, program: Program) -> set[int]:
        return {index for index, instruction in enumerate(program.instructions) if self.is_flag(instruction)}

    def is_flag(self, i: Instruction) -> bool:
        parts = i.opcode.split(".")
        releases = "release" in parts or "acq_rel" in parts
        if _NOT_GLOBAL.search(i.opcode) or parts[0] not in ("atom", "red", "st"):
            return False
        return "exch" in parts or (releases and "sys" in parts)

    def flag_scope(self, i: Instruction) -> list[str]:
        parts = i.opcode.split(".")
        missing = [] if {"release", "acq_rel"} & set(parts) else ["the flag is not released: .release is missing"]
        return missing + ([] if "sys" in parts else ["the flag is not at system scope: .sys is missing"])

    def is_global_read(self, i: Instruction) -> bool:
        parts = i.opcode.split(".")
        return parts[0] in ("ld", "atom") and not _NOT_GLOBAL.search(i.opcode)

    def poll(self, program: Program, loop: Loop, index: int) -> list[str]:
        parts = program.instructions[index].opcode.split(".")
        missing = [] if {"acquire", "acq_rel"} & set(parts) else ["the poll does not acquire: .acquire is missing"]
        return missing + ([] if "sys" in parts else ["the poll is not at system scope: .sys is missing"])

    def after(self, i: Instruction, state: State) -> State:
        plain, bulk = state
        if self.is_barrier(i):
            return (0, 0), ((0, 0) if bulk[0] == 1 else bulk)
        if i.opcode.startswith("cp.async.bulk") and (".global.shared" in i.opcode or ".reduce" in i.opcode):
            return plain, (2, i.line)
        if i.opcode == "cp.async.bulk.wait_group" and i.text.split()[-1] == "0" and bulk[0] == 2:
            return plain, (1, bulk[1])
        is_store = i.opcode.startswith("st.") and not _NOT_GLOBAL.search(i.opcode)
        return ((1, i.line), bulk) if is_store and not self.is_flag(i) else state


class _Amd:
    """The rules for AMDGCN."""

    hazards = (
        dict.fromkeys((1, 2), "no s_waitcnt vmcnt(0) of every wave with an s_barrier behind it"),
        {1: "no s_waitcnt vmcnt(0) after the buffer_wbl2", 2: "no system-scope L2 write-back (buffer_wbl2)"},
    )

    def __init__(self, target: Target):
        self.target = target
        self.scoped = target.name != "gfx90a"  # scope bits sc0, sc1 came with gfx940
        self.system = {"sc0", "sc1"} if self.scoped else set()

    def is_barrier(self, i: Instruction) -> bool:
        return i.opcode == "s_barrier"

    def flags(self, program: Program) -> set[int]:
        found, releasing = set(), False
        for index, i in enumerate(program.instructions):
            if "_atomic_" in i.opcode and not i.opcode.startswith("ds_") and ("_swap" in i.opcode or releasing):
                found.add(index)
            # A release is its write-back and what follows it in straight line.
            ends = self.is_barrier(i) or "_atomic_" in i.opcode or program.following[index] != [index + 1]
            releasing = i.opcode == "buffer_wbl2" or (releasing and not ends)
        return found

    def flag_scope(self, i: Instruction) -> list[str]:
        return ["the flag is not at system scope: sc1 is missing"] if self.scoped and "sc1" not in i.modifiers else []

    def is_global_read(self, i: Instruction) -> bool:
        loads = i.opcode.startswith(("global_load", "flat_load", "buffer_load")) and "Spill" not in i.text
        return loads or ("_atomic_" in i.opcode and bool(i.writes))

    def poll(self, program: Program, loop: Loop, index: int) -> list[str]:
        read = program.instructions[index]
        bits = self.system if self.scoped else {"glc"}
        if "_atomic_" in read.opcode and self.scoped:
            bits = {"sc1"}
        missing = [] if bits <= read.modifiers else [f"the poll may read a cache: {' '.join(sorted(bits))} is missing"]
        wanted = ["buffer_inv"] if self.scoped else ["buffer_invl2", "buffer_wbinvl1_vol"]
        for opcode in wanted:
            invalidates = {
                i for i in loop.body
                if program.instructions[i].opcode == opcode and self.system <= program.instructions[i].modifiers
            }  # fmt: skip
            waits = {i for i in loop.body if _waits_for_all(program.instructions[i])}
            if program.leaves(index, loop, invalidates):
                name = " ".join([opcode, *sorted(self.system)])
                missing.append(f"the poll does not acquire at system scope: {name} is missing after it")
            elif any(program.reaches(index, i, loop, waits) for i in invalidates):
                missing.append(f"no s_waitcnt vmcnt(0) between the poll and {opcode}")
        return missing

    def after(self, i: Instruction, state: State) -> State:
        waves, cache = state
        if _is_amd_store(i):
            return (2, i.line), (2, i.line)
        if self.is_barrier(i) and waves[0] == 1:
            return (0, 0), cache
        if i.opcode == "buffer_wbl2" and self.system <= i.modifiers and cache[0] == 2:
            return waves, (1, cache[1])
        if _waits_for_all(i):
            return ((1, waves[1]) if waves[0] == 2 else waves), ((0, 0) if cache[0] == 1 else cache)
        return state


def _waits_for_all(i: Instruction) -> bool:
    return i.opcode == "s_waitcnt" and "vmcnt(0)" in i.text


def _is_amd_store(i: Instruction) -> bool:
    return i.opcode.startswith(("global_store", "flat_store", "buffer_store")) and "Spill" not in i.text

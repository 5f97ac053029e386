"""Generated assembly (PTX, AMDGCN) as instructions with registers and a control-flow graph, for the lint.

Only the entry function is read. Line numbers are those of the assembly file, from 1. Registers are approximate, in the safe
direction for `Program.loop_inputs`: shared memory counts as one register, and condition registers are implied by opcodes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

SHARED = "shared memory"


@dataclass(frozen=True)
class Instruction:
    """One instruction: its line, its text, opcode, the registers it writes and reads, branch targets (labels)."""

    line: int
    text: str
    opcode: str
    writes: frozenset[str]
    reads: frozenset[str]
    targets: tuple[str, ...] = ()
    predicated: bool = False
    ends: bool = False

    @property
    def modifiers(self) -> set[str]:
        """The dotted parts of a PTX opcode, or every word of an AMD instruction ("sc0", "glc", ...)."""
        return set(self.opcode.split(".")) | set(self.text.replace(",", " ").split())


@dataclass(frozen=True)
class Loop:
    """A natural loop: index of its first instruction and all of its instructions' indices, in program order."""

    header: int
    body: tuple[int, ...]


class Program:
    """Instructions in program order, with successors: `following[i]` are the indices that may run after instruction i."""

    def __init__(self, instructions: list[Instruction], labels: dict[str, int]):
        self.instructions = instructions
        self.following: list[list[int]] = []
        last = len(instructions) - 1
        for index, instruction in enumerate(instructions):
            nexts = [labels[name] for name in instruction.targets if labels.get(name, last + 1) <= last]
            falls = instruction.predicated or not (instruction.targets or instruction.ends)
            if falls and index < last:
                nexts.append(index + 1)
            self.following.append(nexts)

    @cached_property
    def blocks(self) -> list[range]:
        """Basic blocks, in program order; the first is the entry."""
        starts = {0}
        for index, nexts in enumerate(self.following):
            if nexts != [index + 1]:
                starts.update(nexts)
                starts.add(index + 1)
        cuts = sorted(s for s in starts if s < len(self.instructions)) + [len(self.instructions)]
        return [range(a, b) for a, b in pairwise(cuts)]

    @cached_property
    def _block_edges(self) -> list[list[int]]:
        block_of = {block.start: number for number, block in enumerate(self.blocks)}
        return [[block_of[target] for target in self.following[block[-1]]] for block in self.blocks]

    def _dominators(self) -> list[set[int]]:
        """Blocks that every path from the entry to a block passes; unreachable blocks get only themselves."""
        before: list[list[int]] = [[] for _ in self.blocks]
        for source, targets in enumerate(self._block_edges):
            for target in targets:
                before[target].append(source)
        everything = set(range(len(self.blocks)))
        dominators = [everything.copy() for _ in self.blocks]
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for number in range(1, len(self.blocks)):
                parents = [dominators[p] for p in before[number]]
                now = (set.intersection(*parents) if parents else set()) | {number}
                if now != dominators[number]:
                    dominators[number], changed = now, True
        self._before = before
        return dominators

    @cached_property
    def innermost_loops(self) -> list[Loop]:
        """Natural loops that contain no other loop's header, in program order."""
        dominators = self._dominators()
        bodies: dict[int, set[int]] = {}
        for source, targets in enumerate(self._block_edges):
            for header in targets:
                if header in dominators[source]:
                    body, todo = {header}, [source]
                    while todo:
                        block = todo.pop()
                        if block not in body:
                            body.add(block)
                            todo += self._before[block]
                    bodies[header] = bodies.get(header, set()) | body
        loops = []
        for header, body in sorted(bodies.items()):
            if not any(other != header and other in body for other in bodies):
                inside = tuple(i for block in sorted(body) for i in self.blocks[block])
                loops.append(Loop(self.blocks[header].start, inside))
        return loops

    @cached_property
    def preceding(self) -> list[list[int]]:
        """`preceding[i]` are the indices that may run before instruction i."""
        before: list[list[int]] = [[] for _ in self.instructions]
        for index, nexts in enumerate(self.following):
            for target in nexts:
                before[target].append(index)
        return before

    def loop_inputs(self, loop: Loop) -> list[int]:
        """Instructions of `loop` whose results its exit conditions depend on: reaching definitions, followed backwards."""
        inside = set(loop.body)
        todo = [
            (index, register)
            for index in loop.body
            if any(target not in inside for target in self.following[index])
            for register in self.instructions[index].reads
        ]
        seen = set(todo)
        chosen: set[int] = set()
        while todo:
            for writer in self._writers(*todo.pop(), inside):
                chosen.add(writer)
                fresh = {(writer, register) for register in self.instructions[writer].reads} - seen
                seen |= fresh
                todo += fresh
        return sorted(chosen)

    def _writers(self, reader: int, register: str, inside: set[int]) -> list[int]:
        """Instructions in `inside` that may have written what `reader` finds in `register`."""
        found, seen, todo = [], set(), list(self.preceding[reader])
        while todo:
            index = todo.pop()
            if index in seen or index not in inside:
                continue
            seen.add(index)
            instruction = self.instructions[index]
            if register in instruction.writes:
                found.append(index)
                if register != SHARED and not instruction.predicated:
                    continue  # overwritten: what was there before cannot be seen
            todo += self.preceding[index]
        return found

    def reaches(self, start: int, goal: int, loop: Loop, stop: set[int]) -> bool:
        """Whether a path inside `loop` leads from after `start` to `goal` without running an instruction in `stop`."""
        inside, seen, todo = set(loop.body), set(), list(self.following[start])
        while todo:
            index = todo.pop()
            if index == goal:
                return True
            if index in seen or index not in inside or index in stop:
                continue
            seen.add(index)
            todo += self.following[index]
        return False

    def leaves(self, start: int, loop: Loop, stop: set[int]) -> bool:
        """Whether a path leads from after `start` out of `loop` without running an instruction in `stop`."""
        inside, seen, todo = set(loop.body), set(), list(self.following[start])
        while todo:
            index = todo.pop()
            if index not in inside:
                return True
            if index in seen or index in stop:
                continue
            seen.add(index)
            todo += self.following[index]
        return False


def parse(assembly: str, amd: bool) -> Program:
    """Parse the entry function of a PTX (`amd` False) or AMDGCN file."""
    instructions, labels = [], {}
    for item in _amd_lines(assembly) if amd else _ptx_statements(assembly):
        if isinstance(item, str):
            labels[item] = len(instructions)
        else:
            instructions.append(item)
    if not instructions:
        raise ValueError("no entry function in the assembly")
    return Program(instructions, labels)


# PTX

_PTX_REGISTER = re.compile(r"%[\w.]+")
_PTX_NO_RESULT = re.compile(r"(st|red|bra|brx|bar|barrier|cp|ret|exit|trap|fence|membar|mbarrier|prefetch|call)\b")


def _ptx_statements(assembly: str) -> Iterator[Instruction | str]:
    """Labels and instructions between the braces of the `.entry` function."""
    depth, started, pending, first = 0, False, "", 0
    for number, raw in enumerate(assembly.splitlines(), start=1):
        text = raw.split("//")[0].strip()
        started = started or ".entry" in text
        if not started or not text:
            continue
        if depth == 0:
            depth = 1 if text == "{" else 0
            continue
        if not pending and text in ("{", "}"):
            depth += 1 if text == "{" else -1
            if depth == 0:
                return
            continue
        if not pending and re.fullmatch(r"[\w$]+:", text):
            yield text[:-1]
            continue
        if not pending and text.startswith("."):
            continue
        first = first if pending else number
        *complete, pending = re.split(r";", f"{pending} {text}".strip())
        pending = pending.strip()
        for statement in complete:
            if statement.strip("{} \t"):
                yield _ptx_instruction(first, statement.strip())
            first = number


def _ptx_instruction(line: int, text: str) -> Instruction:
    match = re.match(r"(?:@(!?%\w+)\s+)?(\S+)\s*(.*)", text, re.DOTALL)
    predicate, opcode, operands = match.group(1), match.group(2), match.group(3)
    kind = opcode.split(".")[0]
    registers = set(_PTX_REGISTER.findall(operands))
    results: set[str] = set()
    if not _PTX_NO_RESULT.match(opcode):
        first = re.match(r"\{[^}]*\}|[^,\[]+", operands)
        results = set(_PTX_REGISTER.findall(first.group(0))) if first else set()
    reads = (registers - results) | {r for r in results if operands.count(r) > 1}
    if predicate:
        reads.add(predicate.lstrip("!"))
    if ".shared" in opcode:
        if kind == "ld":
            reads.add(SHARED)
        else:
            results.add(SHARED)
    targets = tuple(re.findall(r"\$[\w$]+", operands)) if kind in ("bra", "brx") else ()
    ends = kind in ("ret", "exit", "trap")
    return Instruction(line, text, opcode, frozenset(results), frozenset(reads), targets, predicate is not None, ends)


# AMDGCN

_AMD_RANGE = re.compile(r"\b([vsa])\[(\d+):(\d+)\]|\b([vsa]\d+)\b|\b(vcc|exec|scc|m0)(?:_lo|_hi)?\b")
_AMD_NO_RESULT = re.compile(
    r"(global|flat|buffer|scratch)_store|ds_write|s_(cbranch|branch|barrier|waitcnt|endpgm|nop|setprio|sleep)|buffer_(wb|inv)"
)


def _amd_lines(assembly: str) -> Iterator[Instruction | str]:
    """Labels and instructions from the kernel's label to its `.Lfunc_end`."""
    started = False
    for number, raw in enumerate(assembly.splitlines(), start=1):
        started = started or "; @" in raw and re.match(r"[\w.$]+:", raw) is not None
        text = raw.split(";")[0].strip()
        if not started or not text:
            continue
        if text.startswith(".Lfunc_end"):
            return
        label = re.match(r"([\w.$]+):\s*(.*)", text)
        if label:
            yield label.group(1)
            text = label.group(2)
        if text and not text.startswith("."):
            spill = " ; Spill" if re.search("Folded (Spill|Reload)", raw) else ""
            yield _amd_instruction(number, text + spill)


def _amd_registers(text: str) -> set[str]:
    found = set()
    for bank, low, high, single, special in _AMD_RANGE.findall(text):
        found |= {f"{bank}{i}" for i in range(int(low), int(high) + 1)} if bank else {single or special}
    return found


def _amd_instruction(line: int, text: str) -> Instruction:
    opcode, _, operands = text.partition(" ")
    parts = re.split(r",\s*(?![^\[]*\])", operands.strip())
    returns = "_atomic_" not in opcode or bool({"glc", "sc0"} & set(operands.split()))
    no_result = _AMD_NO_RESULT.match(opcode) is not None or not returns
    compares = re.match(r"s_(cmp|cmpk|bitcmp)", opcode) is not None
    results = set() if no_result or compares else _amd_registers(parts[0])
    reads = _amd_registers(operands if no_result or compares else ",".join(parts[1:]))
    if "_co_" in opcode:
        results |= _amd_registers(parts[1])
    if opcode.startswith("ds_write"):
        results.add(SHARED)
    elif opcode.startswith("ds_read"):
        reads.add(SHARED)
    if opcode.startswith("s_cbranch_"):
        reads.add(re.match(r"s_cbranch_(vcc|exec|scc)", opcode).group(1))
    elif "saveexec" in opcode:
        results |= {"exec", "scc"}
        reads.add("exec")
    elif compares or re.match(r"s_(add|sub|and|or|xor|not|lsh|ash|min|max|andn2|orn2|bfe|abs|nand|nor|xnor)", opcode):
        results.add("scc")
    if re.match(r"s_(addc|subb|cselect|cmov)", opcode):
        reads.add("scc")
    targets = (parts[0],) if opcode == "s_branch" or opcode.startswith("s_cbranch") else ()
    conditional, ends = opcode.startswith("s_cbranch"), opcode == "s_endpgm"
    return Instruction(line, text, opcode, frozenset(results), frozenset(reads), targets, conditional, ends)

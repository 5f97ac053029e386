"""Automatic transformations of kernel source, one synchronisation mistake each.

A mutant is made from the text of a module by a rule, never written by hand, so that no kernel escapes because nobody thought
of it. Rules look at the syntax tree only, for the idioms of Triton (`sem=`, `scope=`, `tl.debug_barrier()`, spinning `while`) and for names
that a caller may extend; where the same mistake was found in the wild, the rule's `precedent` says so.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SIGNALS = frozenset({"signal", "put_signal", "signal_op", "atomic_xchg"})
WAITS = frozenset({"wait", "signal_wait_until", "wait_until"})
BARRIERS = frozenset({"debug_barrier", "drain"})
STORES = frozenset({"store", "put", "put_nbi"})


@dataclass(frozen=True)
class Mutant:
    """One mutant of one module.

    Attributes:
        operator: rule that made it.
        function: kernel function that it changes.
        line: line of the change in the original source.
        before, after: the changed code, one line each ("" where a statement is gone).
        source: text of the mutated module.
    """

    operator: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """Unique within a module: operator@function:line."""
        return f"{self.operator}@{self.function}:{self.line}"


def kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions of a module that are decorated with `jit`."""
    return [
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in n.decorator_list)
    ]


def blocks(kernel: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements within a function."""
    for node in ast.walk(kernel):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def callee(node: ast.AST) -> str:
    """Last part of the name of a call's function ("" for anything else): tl.store -> store."""
    function = node.func if isinstance(node, ast.Call) else None
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _is_call_statement(node: ast.stmt, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Expr) and callee(node.value) in names


Edit = Callable[[], None]
Site = tuple[ast.AST, Edit]


def _keyword(
    kernel: ast.AST, key: str, old: tuple[str, ...], new: str, only: Callable[[ast.Call], bool] = bool
) -> Iterator[Site]:
    for call in _calls(kernel):
        for keyword in call.keywords:
            if (
                keyword.arg == key
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value in old
                and only(call)
            ):
                yield call, lambda k=keyword: setattr(k, "value", ast.Constant(new))


def _drop(kernel: ast.AST, wanted: Callable[[ast.stmt], bool]) -> Iterator[Site]:
    for block in blocks(kernel):
        for index, statement in enumerate(block):
            if wanted(statement):
                yield statement, lambda b=block, i=index: b.__setitem__(i, ast.Pass())


def release_to_relaxed(kernel: ast.AST) -> Iterator[Site]:
    return _keyword(kernel, "sem", ("release", "acq_rel"), "relaxed")


def acquire_to_relaxed(kernel: ast.AST) -> Iterator[Site]:
    return _keyword(kernel, "sem", ("acquire", "acq_rel"), "relaxed")


def system_to_device_scope(kernel: ast.AST) -> Iterator[Site]:
    return _keyword(kernel, "scope", ("sys",), "gpu")


def device_to_block_scope(kernel: ast.AST) -> Iterator[Site]:
    return _keyword(kernel, "scope", ("gpu",), "cta")


def drop_barrier(kernel: ast.AST) -> Iterator[Site]:
    return _drop(kernel, lambda s: _is_call_statement(s, BARRIERS))


def drop_wait(kernel: ast.AST) -> Iterator[Site]:
    def spins(s: ast.stmt) -> bool:
        return isinstance(s, ast.While) and any(callee(c).startswith("atomic_") for c in _calls(s.test))

    return _drop(kernel, lambda s: spins(s) or _is_call_statement(s, WAITS))


def drop_signal(kernel: ast.AST) -> Iterator[Site]:
    return _drop(kernel, lambda s: _is_call_statement(s, SIGNALS))


def drop_fence(kernel: ast.AST) -> Iterator[Site]:
    return _drop(kernel, lambda s: _is_call_statement(s, frozenset({"fence"})))


def drop_quiet(kernel: ast.AST) -> Iterator[Site]:
    return _drop(kernel, lambda s: _is_call_statement(s, frozenset({"quiet"})))


def flag_before_data(kernel: ast.AST) -> Iterator[Site]:
    """Move a flag in front of the last statement before it that stores or puts data (in the same or an enclosed block)."""
    for block in blocks(kernel):
        for index, statement in enumerate(block):
            if not any(callee(c) in SIGNALS for c in _calls(statement)):
                continue
            for earlier in range(index - 1, -1, -1):
                if any(callee(c) in STORES for c in _calls(block[earlier])):
                    yield statement, lambda b=block, i=index, e=earlier: b.insert(e, b.pop(i))
                    break


def wait_for_equality(kernel: ast.AST) -> Iterator[Site]:
    for node in ast.walk(kernel):
        if isinstance(node, ast.While) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Lt):
            yield node.test, lambda t=node.test: setattr(t, "ops", [ast.NotEq()])


def constant_epoch(kernel: ast.AST) -> Iterator[Site]:
    """The epoch never advances: a flag of the last call satisfies the wait of this one."""
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and callee(node.value) == "epoch":
            one = ast.parse("tl.cast(1, tl.int64)", mode="eval").body
            yield node, lambda n=node, v=one: setattr(n, "value", v)


def drop_double_buffer(kernel: ast.AST) -> Iterator[Site]:
    """`epoch % 2` chooses between two buffers: always the first."""
    for node in ast.walk(kernel):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod)
            and isinstance(node.right, ast.Constant)
            and node.right.value == 2
        ):
            yield node, lambda n=node: setattr(n, "right", ast.Constant(1))


def wrong_peer(kernel: ast.AST) -> Iterator[Site]:
    """A translated pointer or a flag that stays at home."""
    for call in _calls(kernel):
        if callee(call) in {"peer_ptr", "signal", "put_signal", "signal_op"} and len(call.args) >= 4:
            yield call, lambda c=call: c.args.__setitem__(-1, copy.deepcopy(c.args[-2]))


def wrong_slot(kernel: ast.AST) -> Iterator[Site]:
    """A flag's address without its last offset: several flags become one."""
    for call in _calls(kernel):
        if callee(call) in SIGNALS | WAITS and call.args and isinstance(call.args[0], ast.BinOp):
            yield call, lambda c=call: c.args.__setitem__(0, c.args[0].left)


def one_step_short(kernel: ast.AST) -> Iterator[Site]:
    """A loop over logical work-groups or slices that ends one early."""
    for node in ast.walk(kernel):
        if isinstance(node, ast.For) and callee(node.iter) == "range" and len(node.iter.args) == 1:
            (count,) = node.iter.args
            shorter = ast.BinOp(count, ast.Sub(), ast.Constant(1))
            yield node, lambda it=node.iter, s=shorter: it.__setattr__("args", [s])


def last_arrival_off_by_one(kernel: ast.AST) -> Iterator[Site]:
    """Last-work-group detection `old == n - 1` fires one early."""
    for node in ast.walk(kernel):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.Eq)
            and isinstance(node.comparators[0], ast.BinOp)
        ):
            last = node.comparators[0]
            if isinstance(last.op, ast.Sub) and isinstance(last.right, ast.Constant) and last.right.value == 1:
                yield node, lambda c=last: setattr(c, "right", ast.Constant(2))


@dataclass(frozen=True)
class Operator:
    """A rule and where its mistake was seen outside this project (`owner/repo#number`, or "" for none known)."""

    sites: Callable[[ast.AST], Iterator[Site]]
    precedent: str = ""


OPERATORS: dict[str, Operator] = {
    "release_to_relaxed": Operator(
        release_to_relaxed, "vllm-project/vllm#57059, microsoft/msccl#38, bytedance/flux#155"
    ),
    "acquire_to_relaxed": Operator(acquire_to_relaxed, "ROCm/aiter#2890"),
    "system_to_device_scope": Operator(system_to_device_scope, "ROCm/iris#462, ROCm/aiter#2890"),
    "device_to_block_scope": Operator(device_to_block_scope),
    "drop_barrier": Operator(drop_barrier, "ROCm/aiter#2890"),
    "drop_wait": Operator(drop_wait, "lightseekorg/tokenspeed#1017"),
    "drop_signal": Operator(drop_signal, "pytorch/pytorch#158167"),
    "drop_fence": Operator(drop_fence, "hw-native-sys/pypto#2158"),
    "drop_quiet": Operator(drop_quiet),
    "flag_before_data": Operator(flag_before_data, "hw-native-sys/pypto#2158"),
    "wait_for_equality": Operator(wait_for_equality, "tenstorrent/tt-metal#54590"),
    "constant_epoch": Operator(constant_epoch, "ROCm/iris#465"),
    "drop_double_buffer": Operator(drop_double_buffer, "lightseekorg/tokenspeed#1356"),
    "wrong_peer": Operator(wrong_peer),
    "wrong_slot": Operator(wrong_slot),
    "one_step_short": Operator(one_step_short),
    "last_arrival_off_by_one": Operator(last_arrival_off_by_one),
}


def mutate(
    source: str, operators: dict[str, Operator] | None = None, functions: frozenset[str] | None = None
) -> Iterator[Mutant]:
    """Every mutant of a module's text.

    Args:
        source: the module.
        operators: rules to apply (all of `OPERATORS` by default).
        functions: kernel functions to change (all functions decorated with `jit` by default).
    """
    for position, kernel in enumerate(kernels(ast.parse(source))):
        if functions is not None and kernel.name not in functions:
            continue
        for name, operator in (operators or OPERATORS).items():
            for site in range(sum(1 for _ in operator.sites(kernel))):
                # A fresh tree each time: an edit must not leak into the next mutant.
                mutated = ast.parse(source)
                target = kernels(mutated)[position]
                node, edit = list(operator.sites(target))[site]
                before, line = ast.unparse(node), getattr(node, "lineno", target.lineno)
                edit()
                ast.fix_missing_locations(mutated)
                text = ast.unparse(mutated)
                after = "" if operator.sites in _REMOVALS else ast.unparse(node)
                yield Mutant(name, kernel.name, line, _one_line(before), _one_line(after), text)


_REMOVALS = frozenset({drop_barrier, drop_wait, drop_signal, drop_fence, drop_quiet})


def _one_line(code: str) -> str:
    return " ".join(code.split())

"""Instrumented kernels for the timeline: made from the production source by a rule, so that this one carries no tracing code.

The rule inserts a time stamp at the start and end of a kernel, after each computed tile, each store of results, each flag
raised and each flag seen. It knows the operators' idioms only: names below.
"""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch

EVENTS = ("start", "computed", "stored", "flag raised", "flag seen", "end")
_AFTER = {
    "computed": frozenset({"partial_tile", "pooled_tile", "product_tile"}),
    "stored": frozenset({"store"}),
    "flag raised": frozenset({"signal", "signal_all", "finish"}),
    "flag seen": frozenset({"wait", "await_all", "await_peer"}),
}
_KEEP: list[TemporaryDirectory] = []  # Triton reads a kernel's source from its file when it compiles it


def _callee(statement: ast.stmt) -> str:
    value = getattr(statement, "value", None)
    function = value.func if isinstance(value, ast.Call) else None
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _mark(event: str) -> list[ast.stmt]:
    code = EVENTS.index(event)
    return ast.parse(f"mark(trace, trace_pid, trace_n, {code}, TRACE_CAPACITY)\ntrace_n += 1").body


def _instrument(block: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in block:
        for field in ("body", "orelse"):
            if getattr(statement, field, None):
                setattr(statement, field, _instrument(getattr(statement, field)))
        found.append(statement)
        for event, names in _AFTER.items():
            if isinstance(statement, (ast.Expr, ast.Assign)) and _callee(statement) in names:
                found += _mark(event)
    return found


def instrumented(source: str) -> str:
    """`source` with every `*_kernel` of it traced: two more parameters, `trace` (int64) and `TRACE_CAPACITY` (constexpr)."""
    tree = ast.parse(source)
    for function in tree.body:
        if not (isinstance(function, ast.FunctionDef) and function.name.endswith("_kernel")):
            continue
        function.args.args.append(ast.arg("trace"))
        function.args.args.append(ast.arg("TRACE_CAPACITY", ast.parse("tl.constexpr", mode="eval").body))
        first = ast.parse("trace_pid = tl.program_id(0)\ntrace_n = trace_pid * 0").body
        function.body = [*first, *_mark("start"), *_instrument(function.body), *_mark("end")]
    tree.body.insert(0, ast.parse("from experiments.studies.trace_device import mark").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


@cache
def module(name: str) -> ModuleType:
    """The instrumented twin of a device module ("kernels.gemv_device"), beside the production one."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    package, _, leaf = name.rpartition(".")
    _KEEP.append(TemporaryDirectory(prefix="traced-"))
    file = Path(_KEEP[-1].name) / f"traced_{leaf}.py"
    file.write_text(instrumented(Path(spec.origin).read_text()))
    twin_spec = importlib.util.spec_from_file_location(f"{package}.traced_{leaf}", file)
    assert twin_spec is not None
    assert twin_spec.loader is not None
    twin = importlib.util.module_from_spec(twin_spec)
    sys.modules[twin.__name__] = twin
    twin_spec.loader.exec_module(twin)
    return twin


class Tracing:
    """A rank whose launches run the instrumented twins; `events()` tells what the last launch wrote."""

    def __init__(self, symm: Any, device_module: str, capacity: int):
        self._symm, self._module, self._capacity = symm, device_module, capacity
        self.trace: torch.Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._symm, name)

    def launch(self, kernel: Any, grid: int, args: dict[str, Any], **options: Any) -> None:
        if self.trace is None or self.trace.shape[0] != grid:
            self.trace = torch.zeros(grid, self._capacity, 2, dtype=torch.int64, device=self._symm.device)
        twin = getattr(module(self._module), kernel.fn.__name__)
        more = {"trace": self.trace, "TRACE_CAPACITY": self._capacity}
        self._symm.launch(twin, grid, args | more, **options)

    def events(self) -> list[tuple[int, int, str, int]]:
        """(work-group, number within it, event, nanoseconds of this GPU's timer) of the last launch."""
        assert self.trace is not None
        found = []
        for pid, entries in enumerate(self.trace.tolist()):
            for number, (at, code) in enumerate(entries):
                if at:
                    found.append((pid, number, EVENTS[code], at))
        return found

"""Which statements of kernels a subject executes: a mutant of any other cannot be noticed, and says nothing."""

import ast
import sys

from ..replay import Replayer, ReplayOptions
from .transform import blocks, kernels

_MARK = "_reached_lines"


def marked(source: str) -> str:
    """The module, its kernels noting the line of each statement before they execute it."""
    tree = ast.parse(source)
    for kernel in kernels(tree):
        for block in list(blocks(kernel)):
            block[:] = [s for old in block for s in (ast.parse(f"{_MARK}.add({old.lineno})").body[0], old)]
    first = 0
    for first, statement in enumerate(tree.body):  # behind the docstring and `from __future__`
        if not (
            isinstance(statement, ast.Expr)
            or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
        ):
            break
    tree.body.insert(first, ast.parse(f"{_MARK} = set()").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def executed(replayer: Replayer, modules: tuple[str, ...], resident: int, seeds: int = 3) -> dict[str, set[int]]:
    """Lines of statements that some of the first seeds execute; modules must be imported from `marked` text."""
    for seed in range(seeds):
        replayer.run(seed, ReplayOptions(resident=resident))
    return {m: set(getattr(sys.modules.get(m), _MARK, ())) for m in modules}


def reached(source: str, line: int, lines: set[int]) -> bool:
    """Whether the innermost statement of a kernel that contains `line` is among the executed `lines`."""
    best: ast.stmt | None = None
    for kernel in kernels(ast.parse(source)):
        for block in blocks(kernel):
            for statement in block:
                inside = statement.lineno <= line <= (statement.end_lineno or statement.lineno)
                if inside and (best is None or statement.lineno >= best.lineno):
                    best = statement
    return best is not None and best.lineno in lines

"""Which files a command's result depends on: the import closure of its modules, found by reading the sources, plus the data beside them.

Snakemake does not see imports; each rule declares this closure as an input. Nothing is imported here.
"""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .files import ROOT

PACKAGES = ("kernels", "emulator", "experiments", "artifact", "figures", "paper_tables")
DATA = (".csv", ".yaml", ".json", ".mplstyle")
# Modules that are found by name at run time: no import statement of the module leads to them.
BY_NAME = {
    "kernels.build.builder": ("kernels.build.worker", "kernels.build.catalog"),
    "experiments.verify": ("kernels", "emulator"),
    "experiments.measure": ("kernels",),
    "emulator.__main__": ("emulator", "kernels"),
    "artifact.notebook": ("kernels", "emulator"),
}
# Data of other rooms or of other steps: never part of a code closure.
NOT_DATA = ("reference",)


def path_of(module: str, root: Path = ROOT) -> Path | None:
    """The file of a module of this repository; None for one from elsewhere."""
    base = root.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _absolute(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The absolute name that a `from ... import` takes from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    keep = len(parts) - node.level + (1 if is_package else 0)
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


@cache
def imports(path: Path, module: str) -> frozenset[str]:
    """Absolute names that a source file imports or names in a string, wherever in the file."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, path.name == "__init__.py", node)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and module != __name__:
            name = node.value.split(":")[0]
            if "." in name and name.split(".")[0] == module.split(".")[0]:
                found.add(name)
    return frozenset(found)


def _package_files(package: str, root: Path) -> list[str]:
    """All modules of a package, by name."""
    folder = root.joinpath(*package.split("."))
    names = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def modules(start: Iterable[str], root: Path = ROOT) -> dict[str, Path]:
    """Every module of this repository that `start` (modules, or packages run with -m) reaches, with its file."""
    found: dict[str, Path] = {}
    todo = list(start)
    while todo:
        module = todo.pop()
        if module.split(".")[0] not in PACKAGES or module in found:
            continue
        path = path_of(module, root)
        if path is None:
            continue
        found[module] = path
        parents = module.split(".")
        todo += [".".join(parents[:i]) for i in range(1, len(parents))]
        todo += imports(path, module)
        for name in BY_NAME.get(module, ()):
            todo += _package_files(name, root) if (root / name.replace(".", "/")).is_dir() else [name]
    return found


def closure(*start: str, root: Path = ROOT) -> list[str]:
    """Paths, relative to the root and sorted, of the sources and data that running `start` depends on.

    A package stands for `python -m package`: its `__main__` is included.
    """
    entries = []
    for name in start:
        entries.append(name)
        if (root.joinpath(*name.split(".")) / "__main__.py").is_file():
            entries.append(f"{name}.__main__")
    files = set(modules(entries, root).values())
    folders = {
        path.parent
        for path in files
        if path.name == "__init__.py" and path.parent.parent != root or path.parent.name in ("cases",)
    }
    for folder in sorted(folders):
        for path in folder.rglob("*"):
            relative = path.relative_to(folder).parts
            if path.suffix in DATA and not set(relative) & set(NOT_DATA):
                files.add(path)
    return sorted(str(path.relative_to(root)) for path in files)

"""Programs by name: what the caller's process sends to ranks, and how a rank finds the function again."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import EmulatorError
from .options import Options


@dataclass(frozen=True)
class Task:
    """One program for all ranks: name, pickled arguments, seed and options, and the caller's import path."""

    program: str
    args: bytes
    seed: int
    resident: int
    options: Options
    path: list[str]


_files: dict[tuple[str, int], ModuleType] = {}


def name_of(program: Callable[..., Any] | str) -> str:
    """ "module:function" or "path.py::function" of a module-level function; strings are checked and returned."""
    if isinstance(program, str):
        if "::" not in program and ":" not in program:
            raise EmulatorError(
                f"program is {program!r}; allowed: 'module:function', 'path.py::function' or a function"
            )
        return program
    module, name = getattr(program, "__module__", None), getattr(program, "__qualname__", "")
    if module is None or not name or "<" in name:
        raise EmulatorError(
            f"program is {program!r}; allowed: a function at the top level of a module, so that ranks find it"
        )
    owner = sys.modules.get(module)
    if module == "__main__":
        spec = getattr(owner, "__spec__", None)
        if spec is not None:
            return f"{spec.name}:{name}"
        file = getattr(owner, "__file__", None)
        if file is None:
            raise EmulatorError(f"program is {name} of an interactive interpreter; allowed: a function in a file")
        return f"{os.path.abspath(file)}::{name}"
    return f"{module}:{name}"


def find(name: str) -> Callable[..., Any]:
    """The function that `name_of` named. Raises `EmulatorError`; errors of the module itself pass through."""
    path, double, function = name.partition("::")
    if double:
        module = _load(path)
    else:
        path, _, function = name.partition(":")
        module = importlib.import_module(path)
    found: Any = module
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise EmulatorError(f"program is {name!r}, but {path} has no function {function!r}")
    return found


def _load(path: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise EmulatorError(f"program file is {path!r}; allowed: an existing Python file")
    key = (str(file), file.stat().st_mtime_ns)
    if key not in _files:
        name = f"_program_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        _files[key] = module
    return _files[key]

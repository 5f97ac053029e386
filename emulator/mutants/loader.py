"""Run mutated modules in place of the originals, in this process only.

Triton reads a kernel's source from its file, so that a mutant is written to a file of its own and imported under the
original's name; everything imported afterwards sees it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from ..errors import EmulatorError


class _Overrides(importlib.abc.MetaPathFinder):
    def __init__(self, files: Mapping[str, Path]):
        self.files = files

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def source_of(module: str) -> str:
    """Text of an importable module, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise EmulatorError(f"module is {module!r}; allowed: an importable Python module with a source file")
    return Path(spec.origin).read_text()


@contextmanager
def override(sources: Mapping[str, str]) -> Iterator[None]:
    """Within the block, importing a module named in `sources` runs that text.

    The named modules and every module imported inside the block are dropped on leaving, so that none keeps a mutant alive.
    Raises `EmulatorError` if a named module is imported already: whoever imported it would go on using the original.
    """
    loaded = sorted(set(sources) & set(sys.modules))
    if loaded:
        raise EmulatorError(f"mutated module is {loaded[0]!r}, imported already; allowed: a fresh process")
    with TemporaryDirectory(prefix="mutant-") as folder:
        files = {}
        for number, (module, text) in enumerate(sources.items()):
            files[module] = Path(folder) / f"{module.rpartition('.')[2]}_{number}.py"
            files[module].write_text(text)
        finder = _Overrides(files)
        before = set(sys.modules)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in set(sys.modules) - before:
                if name.partition(".")[0] == next(iter(sources)).partition(".")[0]:
                    del sys.modules[name]

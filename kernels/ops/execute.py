"""What an operator does in the process that launches its kernel: on CPUs one of the emulator's, elsewhere the caller's."""

import importlib
from typing import Any

from ..symmetric import SymmetricMemory


def fused(symm: SymmetricMemory, operator: str, *args: Any) -> None:
    """`kernels.<operator>.fused(symm, *args)`; the result stands in symmetric memory, so nothing travels back."""
    root = __package__.rpartition(".")[0]
    importlib.import_module(f"{root}.{operator}").fused(symm, *args)

"""Systematic mutants of kernel source: does a verdict "correct" mean anything?

`mutate(source)` yields every mutant of a module's text; `loader.override` runs one in this process in place of the original.
"""

from .transform import OPERATORS, Mutant, mutate

__all__ = ["OPERATORS", "Mutant", "mutate"]

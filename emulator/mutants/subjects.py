"""Subjects of a campaign: which programs, which of their modules are mutated, and what is known to change nothing. A YAML file."""

from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from ..errors import EmulatorError


@dataclass(frozen=True)
class Equivalent:
    """Mutants that change nothing observable.

    Attributes:
        mutant: pattern over the mutant's name ("module.rule@function:line"; shell style, as `change`).
        reason: why no execution differs.
        change: pattern over "before -> after", where a rule applies to several places of one function.
        evidence: lines of generated assembly, where the reason is there.
    """

    mutant: str
    reason: str
    change: str = "*"
    evidence: str = ""


@dataclass(frozen=True)
class LaunchMutant:
    """A change of how kernels are launched.

    Attributes:
        name: of the mutant.
        args: kernel arguments that get other values, where a kernel has them.
        resident: physical work-groups of a rank, while programs are told the subject's number.
        expect: "caught", or "clean" for changes that are no mistake and must not be reported.
        reason: why it is none ("" for a mistake).
    """

    name: str
    args: dict[str, Any]
    resident: int | None = None
    expect: str = "caught"
    reason: str = ""


@dataclass(frozen=True)
class Subject:
    """A program under attack.

    Attributes:
        name: of the subject; column `kernel` of the results.
        program: "module:function" or "path.py::function".
        args: of the program, after `symm`.
        world_size, resident: ranks and physical work-groups of a rank.
        modules: modules whose mutants are run.
        only: patterns over the names of mutants that are run; all by default.
        equivalent: mutants known to change nothing.
        launch: changes of the launches.
        sample: whether the sampled campaign has it.
        heap_bytes: symmetric heap of a rank.
    """

    name: str
    program: str
    args: tuple[Any, ...]
    world_size: int
    resident: int
    modules: tuple[str, ...]
    only: tuple[str, ...] = ("*",)
    equivalent: tuple[Equivalent, ...] = ()
    launch: tuple[LaunchMutant, ...] = ()
    sample: bool = False
    heap_bytes: int = 1 << 20

    def equivalence(self, mutant: str, change: str) -> Equivalent | None:
        """Why a mutant of that name and change does nothing, or None."""
        return next(
            (e for e in self.equivalent if fnmatchcase(mutant, e.mutant) and fnmatchcase(change, e.change)), None
        )

    def wants(self, mutant: str) -> bool:
        """Whether a mutant of that name is run."""
        return any(fnmatchcase(mutant, pattern) for pattern in self.only)


def _made(kind: type, entry: Any, where: str) -> Any:
    if not isinstance(entry, dict):
        raise EmulatorError(f"{where} is {entry!r}; allowed: a mapping")
    allowed = {f.name for f in fields(kind)}
    wrong = sorted(set(entry) - allowed)
    if wrong:
        raise EmulatorError(f"{where} has the field {wrong[0]!r}; allowed: {', '.join(sorted(allowed))}")
    try:
        return kind(**entry)
    except TypeError as error:
        raise EmulatorError(f"{where}: {str(error).partition(')')[2].strip()}") from None


def read(path: Path) -> list[Subject]:
    """Subjects of a file, in order. `equivalent` and `launch` at the top of the file hold for every subject.

    Raises `EmulatorError`: one line that names the file, the entry and what is allowed.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise EmulatorError(f"subjects file is {str(path)!r}: {error.strerror}; allowed: a YAML file") from None
    except yaml.YAMLError as error:
        raise EmulatorError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or not isinstance(document.get("subjects"), list):
        raise EmulatorError(f"{path} has no list `subjects`")
    subjects = []
    for number, entry in enumerate(document["subjects"]):
        where = f"{path}, subject {number + 1}"
        subject = _made(Subject, entry, where)
        known = [*subject.equivalent, *document.get("equivalent", [])]
        launch = [*subject.launch, *document.get("launch", [])]
        subjects.append(
            Subject(**{
                **entry, "args": tuple(subject.args), "modules": tuple(subject.modules),
                "only": tuple(subject.only),
                "equivalent": tuple(_made(Equivalent, e, f"{where}, equivalent") for e in known),
                "launch": tuple(_made(LaunchMutant, e, f"{where}, launch") for e in launch),
            })
        )  # fmt: skip
    return subjects

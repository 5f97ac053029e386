"""`python -m artifact lock`: requirements.lock and environment.yml, made from the installed packages and pyproject.toml, or checked.

The lock names generic versions (no local versions such as +cpu, no vendor wheels that torch brings for one kind of GPU), so that one lock serves
CPU-only and CUDA machines.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from .errors import ArtifactError, require
from .files import ROOT, write_text

LOCK = ROOT / "requirements.lock"
ENVIRONMENT = ROOT / "environment.yml"
LEFT_OUT = re.compile(r"^(nvidia-(?!ml-py)|cuda-|pip$|setuptools$|wheel$|fusedcc$)")
CONDA_PYTHON = "3.11"


def normalise(name: str) -> str:
    """A package name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(group: str | None = None, root: Path = ROOT) -> list[str]:
    """Requirements that pyproject.toml declares: the package's own, or those of an extra."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"][group] if group else project["dependencies"])


def bare(requirement: str) -> str:
    """The normalised name in a requirement."""
    return normalise(re.split(r"[\[<>=!~;\s]", requirement.strip(), maxsplit=1)[0])


def reachable(start: Iterable[str]) -> dict[str, str]:
    """Name to version of everything installed that `start` needs on this kind of machine; local versions cut off."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(bare(r), _extras(r)) for r in start]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = package.version.split("+")[0]
        todo += [(bare(line), _extras(line)) for line in package.requires or [] if _applies(line, extras)]
    return {n: v for n, v in sorted(found.items()) if not LEFT_OUT.match(n)}


def _extras(requirement: str) -> frozenset[str]:
    found = re.match(r"[^\[;<>=!~\s]+\[([^\]]*)\]", requirement.strip())
    return frozenset(e.strip() for e in found.group(1).split(",")) if found else frozenset()


def _applies(line: str, extras: frozenset[str]) -> bool:
    from packaging.requirements import Requirement

    marker = Requirement(line).marker
    return (
        marker is None
        or any(marker.evaluate({"extra": extra}) for extra in extras or {""})
        or marker.evaluate({"extra": ""})
    )


def lock_text() -> str:
    """requirements.lock: every package the pipeline and its tests need, pinned."""
    pins = reachable([*requirements(), *requirements("dev")])
    return (
        "# Made by `python -m artifact lock` from pyproject.toml and an environment that passed the tests. Any index that has these serves.\n"
        + "".join(f"{n}=={v}\n" for n, v in pins.items())
    )


def environment_text(lock: str) -> str:
    """environment.yml: the same pins for conda users, installed by pip inside."""
    pins = [line for line in lock.splitlines() if line and not line.startswith("#")]
    lines = [
        "# Made by `python -m artifact lock`: the pins of requirements.lock. Resolved by a test, not created with conda by the authors.",
        "name: fusedcc",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - python={CONDA_PYTHON}",
        "  - pip",
        "  - pip:",
        *(f"      - {pin}" for pin in pins),
    ]
    return "\n".join(lines) + "\n"


def pins(text: str) -> dict[str, str]:
    """Name to version of the `name==version` lines of a lock or an environment file."""
    return {normalise(n): v for n, v in re.findall(r"^[\s-]*([A-Za-z0-9_.-]+)==(\S+)$", text, re.MULTILINE)}


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact lock", description=__doc__.splitlines()[0])
    p.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 unless environment.yml has the lock's pins and covers pyproject.toml",
    )
    options = p.parse_args(arguments)
    try:
        if options.check:
            found = pins(LOCK.read_text())
            lacking = [bare(r) for r in [*requirements(), *requirements("dev")] if bare(r) not in found]
            require(not lacking, "package without a pin", ", ".join(lacking), "none")
            require(
                pins(ENVIRONMENT.read_text()) == found, "pins of environment.yml", "other", "those of requirements.lock"
            )
        else:
            write_text(LOCK, lock_text())
            write_text(ENVIRONMENT, environment_text(LOCK.read_text()))
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"lock: {len(pins(LOCK.read_text()))} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the build: hands kernels to worker processes and gathers tidy rows."""

import csv
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from ..errors import require
from . import targets

COLUMNS = (
    "kernel", "operator", "role", "dtype", "target", "num_warps", "registers", "agprs", "sgprs", "spills", "shared_bytes",
    "stack_bytes", "occupancy", "limited_by", "status", "reason", "triton_version",
)  # fmt: skip
DEFAULT_CATALOG = f"{__package__}.catalog"


@dataclass
class Report:
    """Rows in catalog order (keys: `COLUMNS`) and the lint's findings, one line each.

    A row's status is "ok", "failed" (it does not compile, does not fit, or breaks an ordering rule) or "missing" (it needs a
    library that is not installed or does not exist for the target); `reason` says why in one line.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(row["status"] != "failed" for row in self.rows)


def select(catalog: str, kernel: str | None, target: str | None) -> list[tuple[Any, targets.Target]]:
    """What to build: (entry, target) pairs; `ProblemError` if a name is unknown.

    `kernel` may name an entry or be a prefix of several, such as an operator.
    """
    try:
        entries = importlib.import_module(catalog).ENTRIES
    except ModuleNotFoundError:
        require(False, "catalog", catalog, "a module with ENTRIES and launch")
    chosen = [e for e in entries if kernel is None or e.kernel == kernel or e.kernel.startswith(f"{kernel}.")]
    require(bool(chosen), "kernel", kernel, ", ".join(e.kernel for e in entries))
    wanted = [targets.get(target)] if target else list(targets.TARGETS.values())
    return [(entry, where) for entry in chosen for where in wanted]


@contextmanager
def _worker(catalog: str) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-m", f"{__package__}.worker", catalog]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.stdin.close()
        process.terminate()
        process.wait()
        process.stdout.close()


def _serve(catalog: str, todo: "Queue[dict[str, Any]]", done: "Queue[dict[str, Any] | BaseException]") -> None:
    """One thread: feeds one worker until nothing is left to do."""
    try:
        with _worker(catalog) as process:
            while True:
                try:
                    request = todo.get_nowait()
                except Empty:
                    return
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    raise RuntimeError(f"the build's worker process ended with {process.wait()}; its output is above")
                done.put(json.loads(answer))
    except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
        done.put(error)


def build(
    pairs: list[tuple[Any, targets.Target]],
    catalog: str = DEFAULT_CATALOG,
    asm_dir: Path | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Compile `pairs` (from `select`) in `jobs` worker processes (default: the cores of this process).

    `asm_dir`: where to put each kernel's assembly and binary, made if needed. `progress` is called with the name of each
    finished kernel. Compiler errors and broken ordering rules become failed rows, not exceptions.
    """
    if asm_dir is not None:
        asm_dir.mkdir(parents=True, exist_ok=True)
    todo: Queue[dict[str, Any]] = Queue()
    done: Queue[dict[str, Any] | BaseException] = Queue()
    for entry, target in pairs:
        todo.put({"kernel": entry.kernel, "target": target.name, "asm_dir": str(asm_dir) if asm_dir else None})
    count = max(1, min(jobs or len(os.sched_getaffinity(0)), len(pairs)))
    threads = [threading.Thread(target=_serve, args=(catalog, todo, done), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in pairs:
        answer = done.get()
        if isinstance(answer, BaseException):
            raise answer
        answers[answer["kernel"], answer["target"]] = answer
        progress(f"{answer['kernel']} {answer['target']}")
    for thread in threads:
        thread.join()
    report = Report()
    version = importlib.metadata.version("triton")
    for entry, target in pairs:
        answer = answers[entry.kernel, target.name]
        known = {"operator": entry.operator, "role": entry.role, "dtype": entry.dtype, "triton_version": version}
        report.rows.append({column: {**answer, **known}.get(column, "") for column in COLUMNS})
        report.findings += answer["findings"]
    return report


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as tidy CSV; numbers that a failed kernel lacks are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)

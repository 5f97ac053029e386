"""Child process of the build: compiles the kernels it is asked for, each in a fork of its own.

Compilers may abort the process that they run in. So the worker imports Triton once and then forks for each kernel: a fork
that dies is one failed row. Requests and answers are JSON lines on stdin and stdout. TRITON_INTERPRET must be unset, since
interpreted and compiled functions do not mix in one process; the parent sees to that (`builder.start`).
"""

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import lint, occupancy, resources, targets

TIMEOUT_S = 300  # linking a device library takes half a minute of an idle core


def compile_entry(catalog: Any, kernel: str, target: targets.Target, asm_dir: str | None, log: Path) -> dict[str, Any]:
    """Build one kernel for one target in this process; the row's fields without the catalog's.

    Args:
        catalog: module with ENTRIES and launch.
        kernel: name of an entry.
        target: what for.
        asm_dir: folder for assembly and binary, or None.
        log: file that this process' stdout goes to, where ptxas' figures are read.
    """
    from triton import knobs
    from triton.runtime import driver

    from .recorder import RecordingMemory

    driver.set_active(targets.StandInDriver(target))
    knobs.nvidia.dump_ptxas_log = True
    entry = next(e for e in catalog.ENTRIES if e.kernel == kernel)
    symm = RecordingMemory(target, entry.world_size)
    catalog.launch(entry, symm)
    if len(symm.launches) != 1:
        raise ValueError(f"{len(symm.launches)} launches recorded; an entry is one launch")
    (launch,) = symm.launches
    options: dict[str, Any] = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    if entry.library == "nvshmem":
        bitcode = nvshmem_bitcode()
        if target.is_amd or bitcode is None:
            why = "NVSHMEM is for NVIDIA GPUs" if target.is_amd else "NVSHMEM's device bitcode is not installed"
            return {"num_warps": launch.num_warps, "status": "missing", "reason": f"not built: {why}", "findings": []}
        options["extern_libs"] = {"libnvshmem_device": bitcode}
    compiled = launch.kernel.warmup(**launch.args, **options, grid=(launch.grid,))
    sys.stdout.flush()
    assembly = compiled.asm[target.assembly]
    binary = compiled.asm["hsaco" if target.is_amd else "cubin"]
    if asm_dir is not None:
        stem = Path(asm_dir) / f"{kernel}.{target.name}"
        stem.with_name(f"{stem.name}.{target.assembly}").write_text(assembly)
        stem.with_name(f"{stem.name}.{'hsaco' if target.is_amd else 'cubin'}").write_bytes(binary)
    if target.is_amd:
        used = resources.from_hsaco(binary, compiled.metadata.shared)
    else:
        used = resources.from_cubin(binary, log.read_text(), compiled.metadata.shared)
    room = occupancy.occupancy(target, launch.num_warps, used.registers, used.agprs, used.sgprs, used.shared_bytes)
    # A linked library brings its own flags and polls, which this project's rules do not speak of.
    findings = [] if entry.library else lint.lint(assembly, target, kernel, entry.communicates)
    reason = f"lint: {findings[0]}" if findings else ""
    if not room.workgroups:
        reason = f"does not fit: no work-group can be resident, limited by {room.limited_by}"
    return {
        "num_warps": launch.num_warps,
        **vars(used),
        "occupancy": room.fraction,
        "limited_by": room.limited_by,
        "status": "failed" if reason else "ok",
        "reason": reason,
        "findings": [str(finding) for finding in findings],
    }


def nvshmem_bitcode() -> str | None:
    """Where NVSHMEM's device bitcode is, or None: an optional part of an installation. `NVSHMEM_LIB_DIR` names its folder."""
    try:
        from torch.distributed._symmetric_memory._nvshmem_triton import NvshmemLibFinder

        return NvshmemLibFinder.find_device_library()
    except (ImportError, RuntimeError):
        return None


def _failed(reason: str) -> dict[str, Any]:
    return {"status": "failed", "reason": reason, "findings": []}


def _in_fork(catalog: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, made in a fork; a dead or late fork gives a failed one."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-build-"))
    log, answer = folder / "log", folder / "answer.json"
    pid = os.fork()
    if pid == 0:
        _fork_body(catalog, request, folder, log, answer)
    deadline = time.monotonic() + TIMEOUT_S
    status = None
    while status is None:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            status = code
        elif time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            shutil.rmtree(folder, ignore_errors=True)
            return _failed(f"compiler took longer than {TIMEOUT_S} s")
        else:
            time.sleep(0.005)
    if answer.exists():
        result = json.loads(answer.read_text())
    else:
        signalled = os.WIFSIGNALED(status)
        how = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if signalled else f"exit {os.WEXITSTATUS(status)}"
        result = _failed(f"compiler died of {how}: {last_words(log.read_text(errors='replace'))}")
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _fork_body(catalog: Any, request: dict[str, Any], folder: Path, log: Path, answer: Path) -> None:
    """Runs in the fork and never returns: no exception may climb into the parent's loop."""
    try:
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        try:
            result = compile_entry(catalog, request["kernel"], targets.get(request["target"]), request["asm_dir"], log)
        except Exception as error:  # noqa: BLE001 - whatever the compiler raises is this row's reason
            said = last_words(log.read_text(errors="replace"))
            also = f" ({said})" if "error:" in said else ""
            result = _failed(f"{type(error).__name__}: {last_words(str(error))}{also}")
        answer.write_text(json.dumps(result))
    finally:
        os._exit(0)


def last_words(text: str, limit: int = 300) -> str:
    """The one line of a compiler's output that says why: LLVM's own error, else the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "LLVM ERROR" in line or "Assertion" in line or "error:" in line]
    return (errors or lines or ["no output"])[0 if errors else -1][:limit]


def _warm_up(catalog: Any) -> None:
    """What every fork would otherwise do for itself: import the compiler and the operators, hash the compiler's files."""
    importlib.import_module("triton.compiler")
    hash_of_compiler = getattr(importlib.import_module("triton.runtime.cache"), "triton_key", None)
    if hash_of_compiler is not None:
        hash_of_compiler()
    if hasattr(catalog, "preload"):
        catalog.preload()


def main() -> None:
    # Answers go to a copy of stdout, so that nothing a compiler prints can mix with them.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    catalog = importlib.import_module(sys.argv[1])
    _warm_up(catalog)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps({**request, **_in_fork(catalog, request)}) + "\n")


if __name__ == "__main__":
    main()

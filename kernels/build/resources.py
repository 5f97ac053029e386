"""What a compiled kernel takes of the GPU, read from its binary."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .code_object import kernel_metadata


class ResourceError(ValueError):
    """A binary or a compiler log without the expected figures."""


@dataclass(frozen=True)
class Resources:
    """Resources of one kernel.

    Attributes:
        registers: 32-bit vector registers per lane (AMD: VGPRs without the AGPRs).
        agprs, sgprs: AMD accumulation registers per lane and scalar registers per wave; 0 on NVIDIA.
        spills: NVIDIA: bytes of spill stores per thread, as ptxas counts; AMD: spilled VGPRs and SGPRs.
        shared_bytes: shared memory (LDS) of a work-group, without what the system reserves.
        stack_bytes: private memory per thread.
    """

    registers: int
    agprs: int
    sgprs: int
    spills: int
    shared_bytes: int
    stack_bytes: int


def from_hsaco(hsaco: bytes, dynamic_shared: int) -> Resources:
    """AMD: from the code object's metadata note.

    There `.vgpr_count` is the whole unified file of gfx90a and later: VGPRs rounded up to 4, then the AGPRs.
    `dynamic_shared` is Triton's `metadata.shared`, bytes of LDS that the launch asks for.
    """
    note = kernel_metadata(hsaco)
    agprs = note[".agpr_count"]
    return Resources(
        registers=note[".vgpr_count"] - agprs,
        agprs=agprs,
        sgprs=note[".sgpr_count"],
        spills=note[".vgpr_spill_count"] + note[".sgpr_spill_count"],
        shared_bytes=note[".group_segment_fixed_size"] + dynamic_shared,
        stack_bytes=note[".private_segment_fixed_size"],
    )


def from_cubin(cubin: bytes, compiler_log: str, dynamic_shared: int) -> Resources:
    """NVIDIA: from `cuobjdump --dump-resource-usage` (bundled with Triton) and the log of `ptxas -v`.

    cuobjdump's LOCAL stays 0 even when a kernel spills, so that spills come from the log. Its SHARED includes the
    1 KiB that the system reserves on compute capability 9.0, which is not the kernel's.
    """
    usage = parse_resource_usage(_cuobjdump(cubin))
    return Resources(
        registers=usage["REG"],
        agprs=0,
        sgprs=0,
        spills=parse_spill_stores(compiler_log),
        shared_bytes=max(0, usage["SHARED"] - 1024) + dynamic_shared,
        stack_bytes=usage["STACK"],
    )


def _cuobjdump(cubin: bytes) -> str:
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ResourceError(f"cuobjdump ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


def parse_resource_usage(text: str) -> dict[str, int]:
    """REG, STACK, SHARED (bytes) of the kernel in cuobjdump's output."""
    found = re.findall(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text)
    if len(found) != 1:
        raise ResourceError(f"{len(found)} kernels in cuobjdump's output; one is expected: {text.strip()[:200]}")
    return dict(zip(("REG", "STACK", "SHARED"), map(int, found[0]), strict=True))


def parse_spill_stores(log: str) -> int:
    """Bytes of spill stores per thread in ptxas' log, summed over the functions of the module."""
    found = re.findall(r"(\d+) bytes spill stores", log)
    if not found:
        raise ResourceError("no spill figures in the log of ptxas")
    return sum(map(int, found))

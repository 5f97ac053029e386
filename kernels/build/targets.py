"""The GPUs that kernels are built for: what the compiler calls them and what limits the work-groups resident on them."""

from dataclasses import dataclass
from typing import Any

from ..errors import require


@dataclass(frozen=True)
class Target:
    """One GPU architecture.

    The unit is one compute unit (AMD) or streaming multiprocessor (NVIDIA), which has four parts (SIMDs, sub-partitions)
    that each hold a quarter of its warps (AMD: wavefronts).

    Attributes:
        name: what the command line and the result rows call it.
        backend, arch, warp_size: Triton's `GPUTarget`.
        machine: a GPU model of this architecture, by the name it gives itself; tuned configurations are looked up by it.
        units: compute units of that model.
        warps_per_part: most warps resident on one part.
        workgroups_per_unit: most work-groups (of two warps or more) resident on one unit.
        registers_per_part: 32-bit vector registers of one part, counted per lane (AMD: VGPR and AGPR together).
        register_granule: a warp's registers per lane are allocated in multiples of this.
        shared_per_unit, shared_granule, shared_reserved: bytes of shared memory (LDS) of a unit; its allocation step; what
            the system takes of it for each work-group.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    machine: str
    units: int
    warps_per_part: int
    workgroups_per_unit: int
    registers_per_part: int
    register_granule: int
    shared_per_unit: int
    shared_granule: int
    shared_reserved: int

    @property
    def is_amd(self) -> bool:
        return self.backend == "hip"

    @property
    def assembly(self) -> str:
        """Triton's name for the stage that the lint reads."""
        return "amdgcn" if self.is_amd else "ptx"

    @property
    def warps_per_unit(self) -> int:
        return 4 * self.warps_per_part

    def gpu_target(self) -> Any:
        """Triton's description of this target (imports Triton)."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp_size)


# NVIDIA: "CUDA C++ Programming Guide", table of technical specifications per compute capability (9.0: 64 warps, 32 blocks,
# 65,536 registers, 228 KiB of shared memory per SM, 1 KiB of it reserved per block), and the allocation steps of
# cuda_occupancy.h (registers: 256 per warp, so 8 per lane; shared memory: 128 bytes; four sub-partitions).
_SM_90 = Target(
    name="sm_90", backend="cuda", arch=90, warp_size=32, machine="NVIDIA H200", units=132, warps_per_part=16, workgroups_per_unit=32,
    registers_per_part=16384 // 32, register_granule=8, shared_per_unit=228 * 1024, shared_granule=128, shared_reserved=1024,
)  # fmt: skip

# AMD: "Instinct MI200 / MI300 Instruction Set Architecture" (section "Wavefront State": 512 unified vector registers per lane,
# allocated in groups of 8, 64 KiB of LDS) and LLVM's AMDGPUBaseInfo.cpp (getVGPRAllocGranule 8, getMaxWavesPerEU 8 with
# gfx90a instructions, getMaxWorkGroupsPerCU 16, LDS in steps of 128 dwords).
_CDNA = {
    "backend": "hip", "warp_size": 64, "warps_per_part": 8, "workgroups_per_unit": 16, "registers_per_part": 512,
    "register_granule": 8, "shared_per_unit": 64 * 1024, "shared_granule": 512, "shared_reserved": 0,
}  # fmt: skip

TARGETS = {
    target.name: target
    for target in (
        _SM_90,
        Target(name="gfx90a", arch="gfx90a", machine="AMD Instinct MI210", units=104, **_CDNA),
        Target(name="gfx942", arch="gfx942", machine="AMD Instinct MI300X", units=304, **_CDNA),
    )
}


def get(name: str) -> Target:
    """The target of that name; `ProblemError` names those there are."""
    require(name in TARGETS, "target", name, ", ".join(TARGETS))
    return TARGETS[name]


class StandInDriver:
    """Answers Triton's question "which GPU is this?" with the target being compiled for.

    Kernels ask it at compile time (`triton.language.target_info`). With no driver the answer is None, and a kernel's AMD
    body would be left out of an AMD binary without a word.
    """

    def __init__(self, target: Target):
        self._target = target.gpu_target()

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

"""Theoretical occupancy: the share of a GPU's warp slots that one kernel can fill, from its resources alone.

A work-group of w warps spreads over the four parts (SIMDs, sub-partitions) of a unit. Five limits, the smallest wins:

* warps:      floor(warp slots of a unit / w)
* workgroups: the unit's most work-groups (AMD: only of two waves or more, which take a barrier)
* registers:  r = registers per lane rounded up to the granule; each part takes floor(part's registers / r) warps;
              floor(4 * that / w). AMD: registers = VGPRs rounded up to 4, plus AGPRs (one unified file since CDNA2).
* sgprs:      AMD only: 800 scalar registers per SIMD in steps of 16: up to 100 a wave leave 8 waves, more leave 7.
* shared:     floor(unit's shared memory / (bytes + reserved, rounded up to the granule))

Occupancy = work-groups * w / warp slots. NVIDIA: this is cuda_occupancy.h (cudaOccMaxActiveBlocksPerMultiprocessor) with
the largest shared-memory carve-out, which Triton selects; a test compares the two. AMD: LLVM's GCNSubtarget
(getOccupancyWithNumVGPRs, getOccupancyWithNumSGPRs, getOccupancyWithWorkGroupSizes); a test compares with the number of
waves that LLVM writes into its assembly.
"""

from dataclasses import dataclass

from .targets import Target


@dataclass(frozen=True)
class Occupancy:
    """`fraction` of the warp slots, `workgroups` resident per unit, and which limit binds (ties: the first of the list above)."""

    fraction: float
    workgroups: int
    limited_by: str


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def vector_registers(registers: int, agprs: int) -> int:
    """Registers per lane of the unified file: AGPRs start at a multiple of 4 after the VGPRs (the accumulator offset)."""
    return _round_up(registers, 4) + agprs if agprs else registers


def occupancy(target: Target, num_warps: int, registers: int, agprs: int, sgprs: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a kernel.

    Args:
        target: the GPU.
        num_warps: warps (AMD: wavefronts) of a work-group.
        registers, agprs: 32-bit vector and accumulation registers per lane.
        sgprs: scalar registers per wave (0 on NVIDIA).
        shared_bytes: shared memory (LDS) of a work-group, static and dynamic.
    """
    lanes = max(1, _round_up(vector_registers(registers, agprs), target.register_granule))
    shared = _round_up(shared_bytes + target.shared_reserved, target.shared_granule)
    limits = {
        "warps": target.warps_per_unit // num_warps,
        "workgroups": target.workgroups_per_unit if num_warps > 1 or not target.is_amd else target.warps_per_unit,
        "registers": 4 * (target.registers_per_part // lanes) // num_warps,
        "sgprs": 4 * (8 if sgprs <= 100 else 7) // num_warps if target.is_amd else target.warps_per_unit // num_warps,
        "shared": target.shared_per_unit // shared if shared else target.warps_per_unit,
    }
    workgroups = min(limits.values())
    limited_by = next(name for name, limit in limits.items() if limit == workgroups)
    return Occupancy(workgroups * num_warps / target.warps_per_unit, workgroups, limited_by)

"""Device half of the timeline: what an instrumented kernel calls."""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit
def mark(trace, pid, number, code: tl.constexpr, CAPACITY: tl.constexpr):
    """Write (nanoseconds of the GPU's global timer, code) as event `number` of work-group `pid`; none beyond CAPACITY."""
    at = trace + (pid * CAPACITY + number) * 2
    ok = number < CAPACITY
    tl.store(at, globaltimer(), mask=ok)
    tl.store(at + 1, code, mask=ok)

"""Which logical work-group a physical one runs next: the device half of `kernels/plan.py`.

Physical work-group `pid` of a persistent grid owns the logical work-groups pid, pid + grid, pid + 2 grid, ...: the same ones
on every rank, so that work-group `pid` of one rank only ever waits for work-group `pid` of another. What differs from rank to
rank is where in that list it starts: at the first one at or after `first`, then cyclically. With logical work-groups
numbered by destination, `first` = the start of rank + 1's range is the paper's remote-first order, and 0 the oblivious one.
Arithmetic, not a table: a table costs one dependent load before the first useful one, and decode kernels last 10 us.
"""

import triton
import triton.language as tl


@triton.jit
def num_steps(pid, grid, n_logical):
    """How many logical work-groups physical work-group `pid` runs (0 when pid >= n_logical)."""
    return tl.maximum(0, (n_logical - pid + grid - 1) // grid)


@triton.jit
def first_step(pid, grid, n_logical, first):
    """Index, in the list of `pid`, of its first logical work-group at or after `first` (cyclically)."""
    steps = num_steps(pid, grid, n_logical)
    start = tl.maximum(0, (first - pid + grid - 1) // grid)
    return tl.where(start < steps, start, 0)


@triton.jit
def logical_at(pid, grid, n_logical, start, step):
    """The logical work-group of step `step`; `start` is what `first_step` gave."""
    steps = tl.maximum(1, num_steps(pid, grid, n_logical))
    return pid + ((start + step) % steps) * grid


@triton.jit
def count_in(pid, grid, low, high):
    """How many logical work-groups of `pid` lie in [low, high)."""
    below_high = tl.maximum(0, (high - pid + grid - 1) // grid)
    below_low = tl.maximum(0, (low - pid + grid - 1) // grid)
    return tl.maximum(0, below_high - below_low)


@triton.jit
def first_in(pid, grid, low):
    """The first logical work-group of `pid` at or after `low`."""
    return pid + tl.maximum(0, (low - pid + grid - 1) // grid) * grid

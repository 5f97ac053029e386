"""Which logical work-group a physical one runs next: the device half of `kernels/plan.py`.

Physical work-group `pid` of a persistent grid owns the logical work-groups pid, pid + grid, pid + 2 grid, ...: the same ones
on every rank, so that work-group `pid` of one rank only ever waits for work-group `pid` of another. They are numbered by
destination, and what differs is in which order a work-group serves the destinations (`plan.ORDERS`): from `first_dest` on,
cyclically, which is the paper's remote-first order for `first_dest` = rank + 1 and the oblivious one for 0; or INTERLEAVED,
where work-group `pid` turns the list of remote destinations by `pid` places.
Arithmetic, not a table: a table costs one dependent load before the first useful one, and decode kernels last 10 us.
"""

import triton
import triton.language as tl


@triton.jit
def destination(turn, pid, first_dest, INTERLEAVED: tl.constexpr, WORLD: tl.constexpr):
    """Whom work-group `pid` serves at its `turn`-th turn, 0 to WORLD - 1; for INTERLEAVED `first_dest` must be rank + 1."""
    if INTERLEAVED and WORLD > 2:
        turn = tl.where(turn < WORLD - 1, (turn + pid) % (WORLD - 1), turn)
    return (first_dest + turn) % WORLD


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
def turned(pid, grid, n_logical, start, rank, per_dest, WORLD: tl.constexpr):
    """For INTERLEAVED, of the list that starts with rank + 1 and ends with the rank's own: (how many are for other ranks, the
    index of the first one for the rank that `pid` serves first). `per_dest` logical work-groups are for one destination."""
    steps = num_steps(pid, grid, n_logical)
    own = count_in(pid, grid, rank * per_dest, tl.minimum((rank + 1) * per_dest, n_logical))
    first = first_step(pid, grid, n_logical, destination(0, pid, (rank + 1) % WORLD, True, WORLD) * per_dest)
    return steps - own, (first - start + steps) % tl.maximum(1, steps)


@triton.jit
def turned_step(step, remote, offset):
    """The index in that list of step `step`: the first `remote` ones turned by `offset`, the own ones last."""
    return tl.where(step < remote, (step + offset) % tl.maximum(1, remote), step)


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

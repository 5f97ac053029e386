"""Multi-rank Triton kernels on a CPU, under an adversary. See README.md.

    import emulator
    results = emulator.run(program, world_size=4)          # program(symm, *args), once per rank
    with emulator.Ranks(4) as ranks:                       # ranks start once and serve many programs
        results = ranks.run(program, *args, seed=7)

Nothing here imports triton: the caller's process may compile its kernels, the ranks interpret them.
"""

from .errors import (
    BadAddress,
    EmulatorError,
    Hang,
    OutOfHeap,
    ProgramFailed,
    RaceFound,
    RankDied,
    TooManyWorkGroups,
    Unsupported,
)

__all__ = [
    "BadAddress",
    "EmulatorError",
    "Hang",
    "OutOfHeap",
    "ProgramFailed",
    "RaceFound",
    "RankDied",
    "TooManyWorkGroups",
    "Unsupported",
]

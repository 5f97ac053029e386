"""Digests of a few programs and seeds, to compare machines and Triton versions by hand:

    TRITON_INTERPRET=1 python -m tests.emulator.digests

prints the same lines everywhere (recorded in test_replay.py for one program; compared for triton 3.6.0, 3.7.1 and 3.9.0).
"""

import functools

import triton

from emulator.replay import Replayer
from tests.emulator import replay_kernels

PROGRAMS = [
    ("push", {"calls": 2}), ("push", {"SPIN": "cas"}), ("push", {"BEFORE": False}), ("gather", {}), ("descriptor", {"wait": "full"}),
    ("rdma", {"how": "fence"}), ("narrow", {"dtype": "uint8"}), ("waits", {"mode": "equal"}),
]  # fmt: skip


def main(seeds: int = 5) -> None:
    """One line a program: the digests of its first seeds, and what was found."""
    for program, how in PROGRAMS:
        replayer = Replayer(functools.partial(getattr(replay_kernels, program), **how), 2, heap_bytes=1 << 20)
        runs = [replayer.run(seed) for seed in range(seeds)]
        found = sorted({report.kind for run in runs for report in run.reports})
        print(program, how, " ".join(run.digest for run in runs), *found)


if __name__ == "__main__":
    print("triton", triton.__version__)
    main()

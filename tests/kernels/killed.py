"""One rank of a group of two that nobody launches or watches over: `python killed.py <rank> <store> <whom to kill>`.

Rank 1 loses itself or its companion in the middle of a kernel; rank 0 prints what it is told.
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist


def main(rank: int, store: str, whom: str) -> None:
    from kernels import ops
    from kernels.ops import memory

    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    input, weight = torch.ones(2, 600), torch.ones(4000, 600)  # a call takes a while
    ops.gemv_all_reduce(torch.ones(1, 4), torch.ones(4, 4))
    companion = memory.symmetric_memory(None, "cpu").pids[1]
    print("pids", os.getpid(), companion, flush=True)
    if rank == 1:
        victim = os.getpid() if whom == "rank" else companion
        threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    try:
        while True:
            ops.gemv_all_reduce(input, weight)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)  # torch's own shutdown waits for the other rank


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

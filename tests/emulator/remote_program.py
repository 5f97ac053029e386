"""One rank of a user's distributed program, in a process that compiles; test_remote.py starts several."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Request:
    factor: int
    tensor: torch.Tensor


# ---- in the companion
def scaled(symm, request, heap_tensor):
    """A copy comes in, a copy goes out, and the heap tensor is changed in place."""
    assert os.environ["TRITON_INTERPRET"] == "1"
    heap_tensor += request.factor
    return {"scaled": request.tensor * request.factor, "empty": torch.empty(0, 3), "rank": symm.rank}


def push(symm, calls, broken):
    import push_program

    return push_program.exchange_tiles(symm, calls, broken)


def transposed_sum(symm, view):
    return view.stride(), int(view[0].sum())


def raising(symm):
    raise LookupError(f"no such thing on {symm.rank}")


def dying(symm):
    os._exit(7)


def endless(symm):
    import time

    time.sleep(60)


# ---- in the user's process
def main(rank: int, world_size: int, store: str, what: str) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import triton

    import emulator.remote

    assert not triton.knobs.runtime.interpret
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    symm = emulator.remote.from_group(dist.group.WORLD.group_name, 1 << 20)
    print("companion", symm._companion.pid, flush=True)
    if what == "works":
        works(symm)
    elif what == "hang":
        symm._timeout_s = 1
        try:
            symm.call("remote_program:push", 1, "no flag")
        except emulator.Hang as error:
            assert "work-group 0 of push waits for flags[0] = 0, at" in str(error), str(error)
            print("ok")
    else:
        symm.call("remote_program:endless")
    symm.close()
    dist.destroy_process_group()


def works(symm) -> None:
    import remote_program as here

    import emulator

    heap = symm.empty((4, 8), torch.float32, "x")
    heap.copy_(torch.arange(32.0).view(4, 8))
    mine = torch.arange(6, dtype=torch.bfloat16).view(2, 3).t()  # not contiguous
    answer = symm.call(here.scaled, here.Request(3, mine), heap[1:3])
    assert torch.equal(answer["scaled"], mine * 3), answer
    assert answer["empty"].shape == (0, 3) and answer["rank"] == symm.rank
    expected = torch.arange(32.0).view(4, 8)
    expected[1:3] += 3
    assert torch.equal(heap, expected)  # what the companion wrote is seen here
    assert symm.call(here.transposed_sum, heap.t()) == ((1, 8), int(heap[:, 0].sum()))

    for _ in range(2):
        assert symm.call(here.push, 2, "") == 0
    assert symm.counts.remote_stores == (0 if symm.world_size == 1 else 2 * 2 * 6), symm.counts

    try:
        symm.call(here.raising)
        raise AssertionError("nothing raised")
    except emulator.ProgramFailed as error:
        assert str(error).startswith(f"rank {symm.rank}: LookupError: no such thing on {symm.rank}, at "), str(error)
    try:
        symm.empty(10 << 20, torch.uint8, "big")
        raise AssertionError("nothing raised")
    except emulator.OutOfHeap as error:
        assert "symmetric buffer big of 10485760 bytes; allowed: " in str(error)
    try:
        symm.launch(None, 1, {})
        raise AssertionError("nothing raised")
    except emulator.EmulatorError as error:
        assert "allowed: call(" in str(error)
    assert symm.call(here.push, 1, "") == 0  # an error of a call is not the end
    symm.barrier()
    try:
        symm.call(here.dying)
        raise AssertionError("nothing raised")
    except emulator.RankDied as error:
        assert f"for rank {symm.rank} exited with status 7" in str(error), str(error)
    assert float(heap[0, 1]) == 1.0  # tensors outlive the companion
    print("ok")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])

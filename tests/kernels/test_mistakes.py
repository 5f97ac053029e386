"""What a user can get wrong with the torch operators: one line that names it on every rank, no hang, nothing left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch_ranks import ROOT, pool

TABLES = [1, 1]


def bags(**changes) -> dict:
    """Operands of an embedding call: one table of 10 rows a rank, four bags of one index."""
    offsets, indices = torch.arange(5), torch.tensor([0, 1, 2, 3])
    right = {"weight": torch.ones(10, 4), "table_offsets": torch.tensor([0]), "indices": indices, "offsets": offsets}
    return right | {"tables": TABLES} | changes


def blocks(**changes) -> dict:
    """Operands of a GEMM call: two experts a rank, six of eight rows used, 16 rows of room for the 6 to 8 that arrive."""
    places = torch.tensor([[0, 0], [1, 2]], dtype=torch.int32) + 8 * dist.get_rank()
    right = {"input": torch.ones(8, 6), "weight": torch.ones(2, 5, 6), "dst_offsets": places}
    return (
        right | {"counts": torch.tensor([[1, 2], [2, 1]], dtype=torch.int32), "scale": None, "rows_out": 16} | changes
    )


def int32(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


def wrong_values() -> dict[str, dict]:
    """By message: (operator, operands) that every rank passes alike."""
    ascending = "the number of indices, ascending"
    inside = "0 or more, and with the block's rows at most 16, the rows of the result"
    return {
        "indices[2] is 99; allowed: 0 or more, less than the rows of their table": bags(indices=torch.tensor([0, 1, 99, 3])),
        "indices[1] is -1; allowed: 0 or more, less than the rows of their table": bags(indices=torch.tensor([0, -1, 2, 3])),
        f"offsets[2] is 1; allowed: 0 to 4, {ascending}": bags(offsets=torch.tensor([0, 3, 1, 3, 4])),
        f"offsets[4] is 400; allowed: 0 to 4, {ascending}": bags(offsets=torch.tensor([0, 1, 2, 3, 400])),
        f"offsets[0] is -3; allowed: 0 to 4, {ascending}": bags(offsets=torch.tensor([-3, 1, 2, 3, 4])),
        "table_offsets[0] is 11; allowed: 0 to 10, the rows of weight, ascending": bags(table_offsets=torch.tensor([11])),
        "batch is 0; allowed: 1 or more": bags(offsets=torch.tensor([0])),
        "stride of weight is (1, 10); allowed: contiguous": bags(weight=torch.ones(4, 10).T),
        "counts[0, 0] is -1; allowed: 0 or more": blocks(counts=int32([-1, 2], [2, 1])),
        "sum of counts is 20; allowed: at most 8, the rows of x": blocks(counts=int32([5, 5], [5, 5])),
        f"dst_offsets[0, 0] is -4; allowed: {inside}": blocks(dst_offsets=int32([-4, 0], [1, 2])),
        f"dst_offsets[1, 0] is 15; allowed: {inside}": blocks(dst_offsets=int32([0, 0], [15, 2])),
        "dst_offsets[1, 1] is 1; allowed: outside of the blocks of earlier experts": blocks(dst_offsets=int32([0, 0], [1, 1])),
        "device of counts is 'meta'; allowed: cpu": blocks(counts=int32([1, 2], [2, 1]).to("meta")),
    }  # fmt: skip


def message_of(function, *args, **kwargs) -> str:
    from kernels import ops

    with pytest.raises(ops.ProblemError) as error:
        function(*args, **kwargs)
    return str(error.value)


def try_wrong_values() -> None:
    from kernels import ops

    for message, operands in wrong_values().items():
        function = ops.embedding_all_to_all if "tables" in operands else ops.gemm_all_to_all
        assert message_of(function, **operands) == message
    ops.embedding_all_to_all(**bags())  # what lies behind the last bag is nobody's index
    ops.embedding_all_to_all(**bags(indices=torch.tensor([0, 1, 2, 3, -9])))
    ops.gemm_all_to_all(**blocks())


def test_wrong_values_are_named():
    pool(2).run(try_wrong_values)


def on_one_rank() -> None:
    """One rank's mistake, or ranks that differ, in calls that the ranks have made before: all are told, and stay in step."""
    from kernels import ops

    rank = dist.get_rank()
    x, w = torch.ones(2, 20), torch.ones(12, 20)
    ops.gemv_all_reduce(x, w)
    told = message_of(ops.embedding_all_to_all, **bags(indices=torch.tensor([0, 1, 99 if rank else 2, 3])))
    wrong = "indices[2] is 99; allowed: 0 or more, less than the rows of their table"
    assert told == (wrong if rank else f"embedding_all_to_all of rank 1: {wrong}")

    told = message_of(ops.gemv_all_reduce, *((torch.ones(2, 21), torch.ones(12, 21)) if rank else (x, w)))
    k = [20, 21]
    assert told.startswith(f"problem of rank {1 - rank} in gemv_all_reduce is Problem(m=12, k={k[1 - rank]}, ")
    assert f"; allowed: the same on every rank; rank {rank} has Problem(m=12, k={k[rank]}, " in told
    told = message_of(ops.gemv_all_reduce, x, w, torch.ones(12) if rank else None)
    assert "bias=True" in told and "bias=False" in told

    operators = ["gemv_all_reduce", "embedding_all_to_all"]
    told = message_of(
        *((ops.embedding_all_to_all,) if rank else (ops.gemv_all_reduce, x, w)), **(bags() if rank else {})
    )
    mine, other = operators[rank], operators[1 - rank]
    assert told == f"operator of rank {1 - rank} in {mine} is '{other}'; allowed: the same on every rank; rank {rank} has '{mine}'"  # fmt: skip

    told = message_of(ops.empty_symmetric, 4 + rank, torch.float32)
    assert told.startswith(
        f"(shape, dtype) of rank {1 - rank} in empty_symmetric is (({4 + 1 - rank},), torch.float32); allowed: the same"
    )
    allowed = "whole numbers, 0 or more, and a torch.dtype"
    for wrong in (((-1,), torch.float32), ((2,), "float32")):
        assert message_of(ops.empty_symmetric, *wrong) == f"(shape, dtype) is {wrong}; allowed: {allowed}"
    told = message_of(ops.empty_symmetric, 4 if rank else -4, torch.float32)
    assert told.endswith(f"(shape, dtype) is ((-4,), torch.float32); allowed: {allowed}")
    told = message_of(*((ops.gemv_all_reduce, x, w) if rank else (ops.empty_symmetric, 4, torch.float32)))
    assert f"operator of rank {1 - rank} in " in told and "'empty_symmetric'" in told
    assert message_of(ops.empty_symmetric, 1 << 40, torch.float32).startswith("symmetric buffer ")
    empty = torch.zeros((1 << 22) + 1, dtype=torch.int64)
    assert "what is left of 67108864 heap bytes" in message_of(ops.embedding_all_to_all, **bags(offsets=empty))
    assert torch.equal(ops.gemv_all_reduce(x, w), torch.full((2, 12), 40.0))


def test_what_one_rank_refuses_all_refuse():
    pool(2).run(on_one_rank)


def into_out() -> None:
    """What may not go in where a result comes out; `residual` may be `out` itself."""
    from kernels import ops

    rank = dist.get_rank()
    x, w = torch.ones(2, 20), torch.ones(12, 20)
    out = ops.empty_symmetric((12, 12), torch.float32)
    y = out[:2]
    call = ops.gemv_all_reduce_out
    shared = "memory of out is 'that of {}'; allowed: memory of its own"
    assert message_of(call, y, out, out=y) == shared.format("input")
    assert message_of(call, torch.ones(2, 12), out, out=y) == shared.format("weight")
    assert message_of(call, x, w, out[1], out=y) == shared.format("bias")
    assert message_of(call, x, w, None, out[1:3], out=y) == shared.format("residual")
    y.fill_(3)
    assert torch.equal(call(x, w, None, y, out=y), torch.full((2, 12), 43.0))
    pooled = ops.empty_symmetric((2, 2, 4), torch.float32)
    told = message_of(
        ops.embedding_all_to_all_out,
        **bags(weight=pooled.view(4, 4), indices=torch.zeros(4, dtype=torch.int64)),
        out=pooled,
    )
    assert told == shared.format("weight")
    rows = ops.empty_symmetric((16, 5), torch.float32)
    operands = blocks(weight=rows.view(-1)[:60].view(2, 5, 6))
    del operands["rows_out"]
    assert message_of(ops.gemm_all_to_all_out, **operands, out=rows) == shared.format("weight")

    asked = "requires_grad of {} is True; allowed: False with out, or a call under torch.no_grad()"
    told = message_of(call, x.clone().requires_grad_(rank == 1), w, out=y) if rank else message_of(call, x, w, out=y)
    assert told == ("" if rank else "gemv_all_reduce of rank 1: ") + asked.format("input")
    parameter = torch.ones(10, 4, requires_grad=True)
    assert message_of(ops.embedding_all_to_all_out, **bags(weight=parameter), out=pooled) == asked.format("weight")
    operands = blocks(scale=torch.ones(8, requires_grad=True))
    del operands["rows_out"]
    assert message_of(ops.gemm_all_to_all_out, **operands, out=rows) == asked.format("scale")
    with torch.no_grad():
        ops.embedding_all_to_all_out(**bags(weight=parameter), out=pooled)
    if not torch.cuda.is_available():
        told = message_of(ops.empty_symmetric, 4, torch.float32, device="cuda")
        assert told == "device is 'cuda'; allowed: cpu, since torch finds no GPU"


def test_what_may_not_go_in_where_a_result_comes_out():
    pool(2).run(into_out)


@pytest.mark.parametrize("whom", ["rank", "companion"])
def test_a_rank_that_is_killed_in_a_kernel_ends_the_other(tmp_path: Path, whom: str):
    shared = set(os.listdir("/dev/shm"))
    start = time.monotonic()
    command = [sys.executable, "tests/kernels/killed.py"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), whom],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=100)[0].splitlines() for rank in ranks]
    assert time.monotonic() - start < 60
    # In a kernel its companion's caller notices; between two calls torch's exchange does, in its own words.
    assert said[0][-1] == "RankDied: rank 1 ended while rank 0 waits for it in a kernel" or "peer" in said[0][-1]
    if whom == "companion":
        assert (
            said[1][-1] == "RankDied: the process that interprets kernels for rank 1 was killed by signal 9 (SIGKILL)"
        )
    pids = [pid for lines in said for pid in next(line for line in lines if line.startswith("pids")).split()[1:]]
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a process is left"
        time.sleep(0.05)
    assert set(os.listdir("/dev/shm")) == shared

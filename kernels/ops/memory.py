"""Where a torch operator finds its symmetric memory: process groups by name, results in the heap, calls to the CPU's emulator.

CUDA tensors: the kernel is launched in this process. CPU tensors: whether Triton interprets is fixed when it is imported, so
the call is forwarded to a process of this rank that was started to interpret and that maps the same heap.
"""

import warnings
from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from .. import symmetric
from ..checks import check_apart, check_devices, check_tensor
from ..errors import ProblemError, require
from ..symmetric import SymmetricMemory
from . import execute

Group = str | dist.ProcessGroup | None
_heap_bytes: int | None = None
_memories: dict[tuple[str, str], tuple[dist.ProcessGroup, SymmetricMemory]] = {}


def set_heap_bytes(nbytes: int) -> None:
    """Size of the symmetric heap of each group whose memory is not set up yet; the same on every rank."""
    global _heap_bytes
    require(isinstance(nbytes, int) and nbytes >= 1, "heap_bytes", nbytes, "a whole number, 1 or more")
    _heap_bytes = nbytes


def group_name(group: Group) -> str:
    """The name that the operators take: of a name, itself; of a process group, its own; of None, the default group's.

    Raises `ProblemError` for what is no group of this rank, such as what `new_group` returns where the rank is not in it.
    """
    if isinstance(group, str):
        return group
    if group is None:
        require(
            dist.is_initialized(), "group", None, "a process group, or None after torch.distributed.init_process_group"
        )
        group = dist.group.WORLD
    require(
        isinstance(group, dist.ProcessGroup), "group", group, "a process group that this rank is in, its name, or None"
    )
    return group.group_name


def process_group(name: str) -> dist.ProcessGroup:
    """The process group of that name; torch's own error if there is none."""
    return dist.distributed_c10d._resolve_process_group(name)


def symmetric_memory(group: Group, device: torch.device | str) -> SymmetricMemory:
    """This rank's symmetric memory in a group, set up on first use (collective) and kept as long as the group lives."""
    device = torch.device(device)
    key = (group_name(group), device.type)
    owner = process_group(key[0])
    known = _memories.get(key)
    if known is None or known[0] is not owner:
        _release_destroyed()
        sizes = () if _heap_bytes is None else (_heap_bytes,)
        known = _memories[key] = (owner, symmetric.provider(device.type)(key[0], *sizes))
    require(device.index in (None, known[1].device.index), "device", str(device), f"{known[1].device}, this rank's")
    return known[1]


def _release_destroyed() -> None:
    """Let go of the memory of groups that were destroyed: another group may have the same name now."""
    alive = dist.distributed_c10d._world.pg_names
    for key in [key for key, (group, _) in _memories.items() if group not in alive]:
        close = getattr(_memories.pop(key)[1], "close", None)
        if close is not None:  # the emulator's processes; tensors stay valid
            close()


def empty_symmetric(
    shape: tuple[int, ...] | int, dtype: torch.dtype, group: Group = None, device: torch.device | str | None = None
) -> Tensor:
    """Collective: a zero-filled tensor at the same place of every rank's heap, for the operators' `_out` faces.

    Args:
        shape, dtype: of the tensor, the same on every rank.
        group: process group, its name, or None for the default one.
        device: "cpu" or "cuda"; None takes what the group's backend moves.

    It lives as long as the group: allocate once, use it for many calls. Raises `ProblemError` when the heap is full, and when
    the ranks ask for different tensors.
    """
    if device is None:
        device = "cuda" if "nccl" in dist.get_backend(process_group(group_name(group))) else "cpu"
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    symm = symmetric_memory(group, device)
    ok = isinstance(dtype, torch.dtype) and all(isinstance(size, int) and size >= 0 for size in sizes)
    wrong = None if ok else f"(shape, dtype) is {(sizes, dtype)}; allowed: whole numbers, 0 or more, and a torch.dtype"
    # On GPUs too: after a difference every later buffer would lie elsewhere on some rank.
    _compare(symm, {"operator": "empty_symmetric", "(shape, dtype)": (sizes, dtype)}, wrong)
    tensor = _allocate(symm, sizes, dtype, "")
    start = tensor.data_ptr()
    symm.state.setdefault("ops.allocations", []).append((start, start + tensor.numel() * tensor.element_size()))
    return tensor


def _allocate(symm: SymmetricMemory, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    """`symm.empty`, whose full heap is a `ProblemError`, whoever provides it."""
    try:
        return symm.empty(shape, dtype, name)
    except ValueError as error:  # what providers raise for a request that does not fit
        raise ProblemError(str(error)) from None


def place_of(symm: SymmetricMemory, tensor: Tensor) -> tuple[int, int] | None:
    """(number of the allocation, offset in bytes) of a tensor from `empty_symmetric` or a view of one; None for any other.

    The same on every rank exactly if the tensor lies at the same place of every heap.
    """
    start = tensor.data_ptr()
    for number, (low, high) in enumerate(symm.state.get("ops.allocations", ())):
        if low <= start and start + tensor.numel() * tensor.element_size() <= high:
            return number, start - low
    return None


def result_buffer(symm: SymmetricMemory, operator: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The operator's own symmetric buffer, of which the owned-result face returns a copy; grown collectively.

    One buffer an operator is enough: an operator writes into a peer's result only after that peer has started the same
    call, which in stream order comes after the copy that ended its call before.
    """
    nbytes = prod(shape) * dtype.itemsize
    buffers = symm.state.setdefault("ops.results", {})
    if operator not in buffers or buffers[operator].numel() < nbytes:
        # Powers of two: a heap gives nothing back, and this way the discarded ones never add up to more than the last.
        size = 1 << max(7, (nbytes - 1).bit_length())
        buffers[operator] = _allocate(symm, (size,), torch.uint8, f"{operator}.result")
    return buffers[operator][:nbytes].view(dtype).view(shape)


def destination(symm: SymmetricMemory, operator: str, out: Tensor) -> Tensor:
    """The symmetric tensor that the kernel writes for `out`: `out` itself if it is symmetric, else a buffer.

    Tracing (functionalization) and `torch.library.opcheck` hand over clones of the caller's tensor, so one that is not
    symmetric costs two copies and a warning, not an error.
    """
    if place_of(symm, out) is not None:
        return out
    warnings.warn(
        f"fusedcc::{operator}_out: out is not symmetric, so it is copied there and back; "
        "allowed without copies: a tensor from kernels.ops.empty_symmetric",
        stacklevel=3,
    )
    return result_buffer(symm, operator, tuple(out.shape), out.dtype)


def readable(tensor: Tensor) -> bool:
    """Whether its values can be looked at without waiting for a device: a CPU's, and not while tracing."""
    return tensor.device.type == "cpu" and not is_fake(tensor)


def check_out(
    out: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    in_place: str = "",
    **operands: Tensor | None,
) -> None:
    """What every `_out` face asks of its `out`: that, and no memory shared with `operands`; the one named `in_place` may be it."""
    check_devices(device, out=out)
    check_tensor("out", out, shape, dtype)
    if device.type != "meta" and not is_fake(out):
        same = operands.get(in_place)
        if same is not None and same.data_ptr() == out.data_ptr() and same.is_contiguous():
            del operands[in_place]
        check_apart(out, **operands)


def agreed(symm: SymmetricMemory, operator: str, check: Callable[[], Any], out: Tensor | None = None) -> Any:
    """Collective: the problem of this call, which `check` returns, the same on every rank, as are operator and place of `out`.

    On CPUs the ranks compare at every call, and what one of them refuses, all refuse: none waits in a kernel for one that gave
    up. On GPUs the host must not wait for other ranks, so they compare what they have not seen before, and a mistake is
    raised by the rank that made it. Raises `ProblemError`.
    """
    always = hasattr(symm, "call")
    problem = mistake = None
    try:
        problem = check()
    except ProblemError as error:
        if not always:
            raise
        mistake = str(error)
    call = {"operator": operator, "problem": problem}
    if out is not None:
        call["(allocation, byte) of out"] = place_of(symm, out)
    seen = symm.state.setdefault("ops.agreed", set())
    if not always and tuple(call.items()) in seen:
        return problem
    _compare(symm, call, mistake)
    seen.add(tuple(call.items()))
    return problem


def _compare(symm: SymmetricMemory, call: dict[str, Any], mistake: str | None) -> None:
    """Collective: raise `ProblemError` for this rank's mistake, another's, or the first thing that differs between calls."""
    everybody = symm.exchange((call, mistake))
    if mistake is not None:
        raise ProblemError(mistake)
    for rank, (theirs, wrong) in enumerate(everybody):
        if wrong is not None:
            raise ProblemError(f"{theirs['operator']} of rank {rank}: {wrong}")
    for rank, (theirs, _) in enumerate(everybody):
        for thing, value in call.items():
            allowed = f"the same on every rank; rank {symm.rank} has {value!r}"
            require(
                theirs.get(thing) == value, f"{thing} of rank {rank} in {call['operator']}", theirs.get(thing), allowed
            )


def refuse_gradients(operator: str, group: Group, **operands: Tensor | None) -> None:
    """What torch's own functions do with `out=`: nothing flows back through it, so nothing that asks for a gradient may go in."""
    asking = [name for name, t in operands.items() if t is not None and t.requires_grad]
    if not torch.is_grad_enabled() or not asking:
        return

    def refuse() -> None:
        require(False, f"requires_grad of {asking[0]}", True, "False with out, or a call under torch.no_grad()")

    if not torch.compiler.is_compiling():
        agreed(symmetric_memory(group, operands[asking[0]].device), operator, refuse)
    refuse()


def run_owned(
    symm: SymmetricMemory,
    operator: str,
    problem: Any,
    shape: tuple[int, ...],
    operands: tuple[Any, ...],
    clear: bool = False,
) -> Tensor:
    """One fused call; the symmetric buffer of that shape and of the problem's dtype that holds the result until the next.

    `clear` sets it to zero before: for operators that leave parts alone.
    """
    result = result_buffer(symm, operator, shape, problem.dtype)
    if clear:
        result.zero_()
    _launch(symm, operator, problem, result, operands)
    return result


def run_out(symm: SymmetricMemory, operator: str, problem: Any, out: Tensor, operands: tuple[Any, ...]) -> None:
    """One fused call into the caller's `out`: without a copy if that is symmetric."""
    result = destination(symm, operator, out)
    if result is not out:
        result.copy_(out)  # an operator may leave parts of it alone
    _launch(symm, operator, problem, result, operands)
    if result is not out:
        out.copy_(result)


def _launch(symm: SymmetricMemory, operator: str, problem: Any, out: Tensor, operands: tuple[Any, ...]) -> None:
    """The function of `execute` named like the operator, in the process that can launch on this rank's memory."""
    forward = getattr(symm, "call", None)
    if forward is None:
        mistake = getattr(execute, operator)(symm, problem, out, *operands)
    else:
        mistake = forward(f"{execute.__name__}:{operator}", problem, out, *operands)
    if mistake is not None:
        raise ProblemError(mistake)

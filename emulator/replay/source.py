"""What the kernel's bytecode says of a call: whether its result is used, and which frames are the kernel's."""

import dis
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType

from ..assembly import Machine, machine_of
from ..sites import is_kernel
from .held import Position


@cache
def _used(code: CodeType, at: int) -> bool:
    """Whether the value of the call at instruction offset `at` is used: not dropped, and not only kept in a name never read."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "NOP", "EXTENDED_ARG")]
    after = next((i for i in instructions if i.offset > at), None)
    if after is None or after.opname == "POP_TOP":
        return False
    if after.opname == "STORE_FAST":
        return any(i.opname.startswith("LOAD_FAST") and i.argval == after.argval for i in instructions)
    return True


def result_used() -> bool:
    """Whether the kernel uses the result of the operation that it is at (called from within a backend's method)."""
    frame = next(kernel_frames(sys._getframe(1)), None)
    return True if frame is None else _used(frame.f_code, frame.f_lasti)


def kernel_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a kernel and its device functions, innermost first."""
    while frame is not None:
        if is_kernel(frame.f_code):
            yield frame
        frame = frame.f_back


def positions(frame: FrameType | None) -> list[Position]:
    """Where a kernel stands, outermost frame first; inline assembly under execution is the innermost."""
    found: list[Position] = []
    while frame is not None:
        machine = machine_of(frame)
        if machine is not None:
            found.append((machine.asm, machine.position))
        elif is_kernel(frame.f_code):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found[::-1]


def assembly(frame: FrameType | None) -> Machine | None:
    """The inline assembly that a kernel stands in."""
    while frame is not None and not is_kernel(frame.f_code):
        machine = machine_of(frame)
        if machine is not None:
            return machine
        frame = frame.f_back
    return None

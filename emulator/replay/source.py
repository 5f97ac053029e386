"""What the kernel's bytecode says of a call: whether its result is used, and which frames are the kernel's."""

import dis
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType

from ..sites import is_kernel


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

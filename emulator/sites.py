"""Where a kernel stands: source lines, read from the interpreter's Python frames only when somebody asks."""

import os
import sys
from types import CodeType, FrameType

import greenlet
import triton

_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, triton.__file__, greenlet.__file__)
)
_known: dict[CodeType, bool] = {}

Site = tuple[str, int, str]  # file, line, function


def is_kernel(code: CodeType) -> bool:
    """Whether code is the user's: neither Triton's, greenlet's nor the emulator's own, nor made from text."""
    known = _known.get(code)
    if known is None:
        name = code.co_filename
        known = _known[code] = not (name.startswith("<") or os.path.abspath(name).startswith(_LIBRARIES))
    return known


def site(frame: FrameType | None = None) -> Site:
    """The innermost line of kernel source under execution, `(file, line, function)`.

    Args:
        frame: of a suspended work-group (`greenlet.gr_frame`); None for the caller's.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_kernel(frame.f_code):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return "", 0, ""


def chain(frame: FrameType | None = None, limit: int = 8) -> tuple[Site, ...]:
    """`site` and the lines of kernel source that it was called from, innermost first, out to the kernel or host program."""
    frame = frame or sys._getframe(1)
    found: list[Site] = []
    while frame is not None and len(found) < limit:
        if is_kernel(frame.f_code):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(found)


def of_exception(error: BaseException) -> tuple[Site, ...]:
    """The lines of source, neither Triton's nor the emulator's, that an exception went through, innermost first."""
    found: list[Site] = []
    step = error.__traceback__
    while step is not None:
        if is_kernel(step.tb_frame.f_code):
            found.append((step.tb_frame.f_code.co_filename, step.tb_lineno, step.tb_frame.f_code.co_name))
        step = step.tb_next
    return tuple(reversed(found))


def text(where: Site | tuple[Site, ...]) -> str:
    """`file:line in function <- file:line in function`, files relative to the working directory where they lie below it."""
    sites = (where,) if where and isinstance(where[0], str) else where
    parts = []
    for file, line, function in sites:
        relative = os.path.relpath(file) if file else "?"
        parts.append(f"{file if relative.startswith('..') else relative}:{line} in {function}")
    return " <- ".join(parts) or "unknown line"

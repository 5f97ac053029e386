"""Result files, written whole or not at all."""

import os
from pathlib import Path

from .errors import EmulatorError


def write(path: Path, text: str | bytes, option: str) -> None:
    """Replace `path` by `text` in one step, making its folder. Raises `EmulatorError` naming `option`, which asked for the file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(text.encode() if isinstance(text, str) else text)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise EmulatorError(
            f"{option} is {str(path)!r}: {error.strerror}; allowed: a file that can be written"
        ) from None

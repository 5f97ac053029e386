"""Whole files or none: every result is written beside its place and moved there, so that an interrupt leaves no half of one."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ArtifactError

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to write to; it takes the place of `path` when the block ends well, and goes when it does not.

    Raises `ArtifactError` when the disk is full or the folder cannot be written.
    """
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        part = Path(name)
        yield part
        os.chmod(part, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(part, path)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a whole file at once."""
    with replacing(path) as part:
        part.write_bytes(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a whole text file (UTF-8, Unix line ends) at once."""
    return write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> Path:
    """Write indented JSON, keys in the order given."""
    return write_text(path, json.dumps(content, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON. Raises `ArtifactError` naming the file when it is missing or broken."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} is not readable JSON: {str(error).splitlines()[0]}") from None


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

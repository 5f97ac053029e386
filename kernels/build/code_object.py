"""Reader of the metadata note in an AMD code object (hsaco): ELF64 section headers, one note, MessagePack.

Sources: ELF-64 object file format; AMDGPU backend guide, "Code Object V5 Metadata"; the MessagePack specification.
Only what the compiler writes into that note is understood: maps, arrays, strings, integers, booleans and nil.
"""

import struct
from typing import Any

_SHT_NOTE = 7
_NT_AMDGPU_METADATA = 32


class CodeObjectError(ValueError):
    """Not a code object with kernel metadata; the message says what is missing."""


def kernel_metadata(hsaco: bytes) -> dict[str, Any]:
    """The metadata map of the only kernel in `hsaco`, keys as in the backend guide (".vgpr_count", ...)."""
    if hsaco[:5] != b"\x7fELF\x02":
        raise CodeObjectError("not a 64-bit ELF file")
    (section_table,) = struct.unpack_from("<Q", hsaco, 0x28)
    entry_size, entries = struct.unpack_from("<HH", hsaco, 0x3A)
    for index in range(entries):
        header = section_table + index * entry_size
        (kind,) = struct.unpack_from("<I", hsaco, header + 4)
        offset, size = struct.unpack_from("<QQ", hsaco, header + 0x18)
        if kind == _SHT_NOTE:
            for owner, note_type, payload in _notes(hsaco[offset : offset + size]):
                if owner == b"AMDGPU" and note_type == _NT_AMDGPU_METADATA:
                    kernels = unpack(payload).get("amdhsa.kernels", [])
                    if len(kernels) != 1:
                        raise CodeObjectError(f"{len(kernels)} kernels in the code object; one is expected")
                    return kernels[0]
    raise CodeObjectError("no AMDGPU metadata note")


def _notes(section: bytes) -> list[tuple[bytes, int, bytes]]:
    """(owner, type, payload) of every note in a note section; names and payloads are padded to 4 bytes."""
    found, at = [], 0
    while at + 12 <= len(section):
        name_size, size, note_type = struct.unpack_from("<III", section, at)
        name_at = at + 12
        payload_at = name_at + (name_size + 3 & ~3)
        owner = section[name_at : name_at + name_size].rstrip(b"\0")
        found.append((owner, note_type, section[payload_at : payload_at + size]))
        at = payload_at + (size + 3 & ~3)
    return found


def unpack(data: bytes) -> Any:
    """The one MessagePack value in `data`."""
    value, end = _value(data, 0)
    if end != len(data):
        raise CodeObjectError(f"{len(data) - end} bytes after the metadata")
    return value


def _sized(data: bytes, at: int, width: int, signed: bool = False) -> tuple[int, int]:
    return int.from_bytes(data[at : at + width], "big", signed=signed), at + width


def _value(data: bytes, at: int) -> tuple[Any, int]:
    tag, at = data[at], at + 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag < 0x90:
        return _map(data, at, tag & 0x0F)
    if tag < 0xA0:
        return _array(data, at, tag & 0x0F)
    if tag < 0xC0:
        return _text(data, at, tag & 0x1F)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if 0xCC <= tag <= 0xCF:
        return _sized(data, at, 1 << tag - 0xCC)
    if 0xD0 <= tag <= 0xD3:
        return _sized(data, at, 1 << tag - 0xD0, signed=True)
    if tag not in _LONG:
        raise CodeObjectError(f"MessagePack tag 0x{tag:02x} is not understood")
    read, width = _LONG[tag]
    size, at = _sized(data, at, width)
    return read(data, at, size)


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    return data[at : at + size].decode(), at + size


def _array(data: bytes, at: int, size: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(size):
        item, at = _value(data, at)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, size: int) -> tuple[dict[Any, Any], int]:
    pairs = {}
    for _ in range(size):
        key, at = _value(data, at)
        pairs[key], at = _value(data, at)
    return pairs, at


# Tags of values whose size follows in so many bytes.
_LONG = {
    **{0xD9 + log2: (_text, 1 << log2) for log2 in range(3)},
    **{0xDC + log2: (_array, 2 << log2) for log2 in range(2)},
    **{0xDE + log2: (_map, 2 << log2) for log2 in range(2)},
}

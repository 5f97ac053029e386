"""Figures read from binaries: the code object's note, cuobjdump, ptxas' log; and what compiled kernels are known to take."""

import re
import struct

import pytest

from kernels.build import code_object, resources


def test_messagepack_values():
    packed = bytes.fromhex("85a161 ff a162 cd0400 a163 93c0c2c3 a164 d9057669727475 a165 d2fffffff6".replace(" ", ""))
    assert code_object.unpack(packed) == {"a": -1, "b": 1024, "c": [None, False, True], "d": "virtu", "e": -10}


@pytest.mark.parametrize("tag", [0xC1, 0xCA, 0xC4])
def test_messagepack_refuses_what_the_note_never_holds(tag):
    with pytest.raises(code_object.CodeObjectError, match=f"0x{tag:02x}"):
        code_object.unpack(bytes([tag]))


def _elf(notes: bytes) -> bytes:
    """A 64-bit ELF file with one note section."""
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", header, 0x28, 64 + len(notes))
    struct.pack_into("<HH", header, 0x3A, 64, 1)
    section = bytearray(64)
    struct.pack_into("<I", section, 4, 7)
    struct.pack_into("<QQ", section, 0x18, 64, len(notes))
    return bytes(header) + notes + bytes(section)


def _note(owner: bytes, kind: int, payload: bytes) -> bytes:
    def padded(data: bytes) -> bytes:
        return data + b"\0" * (-len(data) % 4)

    return struct.pack("<III", len(owner), len(payload), kind) + padded(owner) + padded(payload)


def test_note_is_found_behind_others():
    payload = b"\x81\xaeamdhsa.kernels\x91\x81\xa2.a\x07"
    elf = _elf(_note(b"GNU\0", 3, b"12345") + _note(b"AMDGPU\0", 32, payload))
    assert code_object.kernel_metadata(elf) == {".a": 7}


def test_missing_note_and_foreign_file_are_named():
    with pytest.raises(code_object.CodeObjectError, match="no AMDGPU metadata note"):
        code_object.kernel_metadata(_elf(_note(b"GNU\0", 3, b"1234")))
    with pytest.raises(code_object.CodeObjectError, match="not a 64-bit ELF"):
        code_object.kernel_metadata(b"MZ not ELF")


def test_cuobjdump_and_ptxas_text():
    usage = "Function lead:\n  REG:29 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:584 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    assert resources.parse_resource_usage(usage) == {"REG": 29, "STACK": 8, "SHARED": 1024}
    assert resources.parse_spill_stores("0 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads") == 24
    with pytest.raises(resources.ResourceError, match="0 kernels"):
        resources.parse_resource_usage("")
    with pytest.raises(resources.ResourceError, match="no spill figures"):
        resources.parse_spill_stores("ptxas info: something else")


def test_accumulation_registers_are_told_apart(built):
    """The kernel uses v41 and a31: 44 registers (42, up to a multiple of 4) and 32 accumulation registers."""
    for target in ("gfx90a", "gfx942"):
        row = built.row("agprs", target)
        assert (row["registers"], row["agprs"]) == (44, 32)
        total = int(re.search(r"; TotalNumVgprs: (\d+)", built.assembly("agprs", target)).group(1))
        assert total == 76


def test_registers_match_the_compilers_own_count(built):
    for target in ("gfx90a", "gfx942"):
        text = built.assembly("matmul", target)
        total, agprs = (int(re.search(rf"; {name}: (\d+)", text).group(1)) for name in ("TotalNumVgprs", "NumAgprs"))
        row = built.row("matmul", target)
        assert (row["registers"] + row["agprs"], row["agprs"]) == (total, agprs)


def test_shared_memory_of_known_kernels(built):
    # Both operands of the dot are 128 x 128 float16: 32 KiB each on Hopper's tensor cores; one that adds up tells nothing else.
    assert built.row("matmul", "sm_90")["shared_bytes"] == 2 * 128 * 128 * 2
    for target in ("sm_90", "gfx90a", "gfx942"):
        assert built.row("scale", target)["shared_bytes"] == 0
        # The spin publishes one polled int64.
        assert built.row("right", target)["shared_bytes"] == 8
        assert built.row("right", target)["spills"] == built.row("right", target)["stack_bytes"] == 0

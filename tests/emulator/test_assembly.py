"""Inline PTX: predicates and branches lane by lane, and what they mean for who has acquired."""

from typing import Any

import numpy as np
import pytest

from emulator.assembly import execute
from emulator.backend import Lanes, Sem
from emulator.errors import Unsupported

U64, I32 = np.dtype(np.uint64), np.dtype(np.int32)


class Cells:
    """Memory by address; a compare-and-swap finds what it expects only the `after`-th time."""

    def __init__(self, after: dict[int, int]):
        self.after, self.calls = dict(after), []

    def atomic_cas(
        self, addresses: np.ndarray, expected: np.ndarray, desired: np.ndarray, sem: Sem, scope: Any, lanes: Lanes
    ):
        self.calls.append(
            (addresses.tolist(), sem, lanes.assembly, None if lanes.mask is None else lanes.mask.tolist())
        )
        seen = []
        for address in addresses.tolist():
            self.after[address] -= 1
            seen.append(0 if self.after[address] <= 0 else 1)
        return np.array(seen, np.uint32)

    def store(self, addresses: np.ndarray, values: np.ndarray, sem: Sem, scope: Any, lanes: Lanes) -> None:
        self.calls.append((addresses.tolist(), values.tolist(), lanes.alone))


SPIN = """
{
    .reg .u32   %old<1>;
    .reg .pred  %p<1>;
    again:
        atom.global.release.sys.cas.b32 %old0, [$1], 0, 1;  // comment
        setp.eq.u32 %p0, %old0, 0;
        @!%p0 bra again;
    mov.u32 $0, %old0;
}
"""


def test_each_lane_spins_for_itself() -> None:
    cells = Cells({16: 1, 32: 3, 48: 2})
    (out,) = execute(cells, SPIN, [np.array([16, 32, 48], np.uint64)], [I32])
    assert out.tolist() == [0, 0, 0]
    assert cells.calls == [
        ([16, 32, 48], Sem.RELEASE, True, None), ([32, 48], Sem.RELEASE, True, [False, True, True]),
        ([32], Sem.RELEASE, True, [False, True, False]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("mov.u32 $0, 7; setp.lt.u32 %p, $1, 2; @%p mov.u32 $0, 9;", [9, 9, 7, 7]),
        ("mov.u32 $0, 7; setp.lt.u32 %p, $1, 2; @!%p mov.u32 $0, 9;", [7, 7, 9, 9]),
        ("setp.ge.u32 %p, $1, 2; @%p bra high; mov.u32 $0, 1; bra.uni end; high: mov.u32 $0, 2; end: add.u32 $0, $0, 10;", [11, 11, 12, 12]),
        ("mov.u32 $0, 0; mov.u32 %i, $1; more: setp.eq.u32 %p, %i, 0; @%p bra end; add.u32 $0, $0, 2; sub.u32 %i, %i, 1; bra more; end:", [0, 2, 4, 6]),
        ("and.b32 %a, $1, 1; or.b32 %b, %a, 4; xor.b32 $0, %b, 1;", [5, 4, 5, 4]),
        ("setp.lt.s32 %p, $1, -1; mov.u32 $0, 0; @%p mov.u32 $0, 1;", [0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_predicates_and_branches(asm: str, expected: list[int]) -> None:
    (out,) = execute(None, asm, [np.arange(4, dtype=np.int32)], [I32])
    assert out.tolist() == expected


def test_a_predicate_on_the_thread_leaves_thread_0_alone() -> None:
    cells, flag = Cells({}), [np.array([16], np.uint64)]
    execute(
        cells,
        "mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 0; @%p st.release.sys.u32 [$0], 1; st.relaxed.sys.u32 [$0], 2;",
        flag,
        [],
    )
    execute(
        cells,
        "setp.ne.u32 %p, %tid.x, 0; @%p bra on; st.relaxed.sys.u32 [$0], 3; on: st.relaxed.sys.u32 [$0], 4;",
        flag,
        [],
    )
    execute(cells, "setp.eq.u32 %p, 1, 1; @%p st.relaxed.sys.u32 [$0], 5;", flag, [])
    execute(cells, "setp.ne.u32 %p, %tid.x, 0; @%p st.relaxed.sys.u32 [$0], 6;", flag, [])
    assert cells.calls == [
        ([16], [1], True),
        ([16], [2], False),
        ([16], [3], True),
        ([16], [4], False),
        ([16], [5], False),
    ]


@pytest.mark.parametrize(
    ("asm", "statement"),
    [
        ("bra nowhere;", "bra nowhere"),
        ("setp.eq.u32 %p, %tid.x, 0; @%p fence.acq_rel.sys;", "fence.acq_rel.sys"),
        ("setp.eq.u32 %p, %tid.x, 0; @%p bar.sync 0;", "bar.sync 0"),
        ("setp.foo.u32 %p, 1, 0;", "setp.foo.u32 %p, 1, 0"),
        ("@%p mov.u32 $0, 1;", "%p"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(asm: str, statement: str) -> None:
    with pytest.raises(Unsupported) as caught:
        execute(None, asm, [np.array([16], np.uint64)], [])
    assert str(caught.value).startswith(f"inline assembly {statement!r} has no emulation")


@pytest.mark.parametrize("how", ["everyone", "thread 0", "atom"])
@pytest.mark.parametrize("after", [True, False])
def test_who_has_acquired(interpreting, how: str, after: bool) -> None:
    """A wait by every thread needs no block barrier, one by thread 0 does; Triton puts none after an atomic in assembly."""
    runs = interpreting("runs", "tests.emulator.ptx_kernels:program", seeds=20, HOW=how, AFTER=after)
    if after or how == "everyone":
        assert [str(report) for run in runs for report in run.reports] == []
        assert all(all(run.results) for run in runs)
    else:
        assert all("with no block barrier before the access by another" in run.reports[0].text for run in runs)

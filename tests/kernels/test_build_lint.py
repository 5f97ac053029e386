"""The lint on compiled kernels, right and wrong ones, and on hand-written control flow."""

import pytest

from kernels.build import targets
from kernels.build.lint import lint, spin_has_barriers

ALL = ("sm_90", "gfx90a", "gfx942")
AMD = ALL[1:]

# kernel -> target -> what its findings must say; targets that are not named must have none.
_VMCNT = "no s_waitcnt vmcnt(0) of every wave"
_WRITE_BACK = "no s_waitcnt vmcnt(0) after the buffer_wbl2"
_NO_POLL = "no wait loop that reads a flag"
BROKEN = {
    "no_barrier": {
        "sm_90": ["no bar.sync between the store"],
        "gfx90a": [_VMCNT, _WRITE_BACK],
        "gfx942": [_VMCNT, _WRITE_BACK],
    },
    # A bare s_barrier waits for nobody's stores; bar.sync does all that NVIDIA needs.
    "bare_barrier": {"gfx90a": [_VMCNT, _WRITE_BACK], "gfx942": [_VMCNT, _WRITE_BACK]},
    "branch": {
        "sm_90": ["no bar.sync between the store"],
        "gfx90a": [_VMCNT, _WRITE_BACK],
        "gfx942": [_VMCNT, _WRITE_BACK],
    },
    # On AMD `drain` has waited and written back, so that the same instructions come out: nothing to find.
    "flag_relaxed": {"sm_90": [".release is missing"]},
    # gfx90a has no scope bits on atomics.
    "flag_gpu_scope": {"sm_90": ["flag is not at system scope"], "gfx942": ["flag is not at system scope: sc1"]},
    "poll_relaxed": {
        "sm_90": [".acquire is missing"],
        "gfx90a": ["buffer_invl2 is missing", "buffer_wbinvl1_vol is missing"],
        "gfx942": ["buffer_inv sc0 sc1 is missing"],
    },
    "poll_gpu_scope": {
        "sm_90": ["poll is not at system scope"],
        "gfx90a": ["buffer_invl2 is missing"],
        "gfx942": ["buffer_inv sc0 sc1 is missing", "may read a cache: sc0 sc1"],
    },
    # The compiler moves a plain load out of the loop: it spins on nothing.
    "poll_plain_load": {target: [_NO_POLL] for target in ALL},
    "no_wait": {target: [_NO_POLL] for target in ALL},
    # Without a full wait the flag may overtake the bulk store; elsewhere a descriptor's store is a plain one.
    "bulk_read_wait": {"sm_90": ["no cp.async.bulk.wait_group 0 (.read is not enough)"]},
}


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("kernel", BROKEN)
def test_broken_kernels(built, kernel, target):
    expected = BROKEN[kernel].get(target, [])
    findings = built.findings(kernel, target)
    assert len(findings) == len(expected), findings
    for words in expected:
        assert any(words in finding for finding in findings), (words, findings)
    assert built.row(kernel, target)["status"] == ("failed" if expected else "ok")


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("kernel", ["right", "scale", "matmul"])
def test_right_kernels(built, kernel, target):
    assert built.findings(kernel, target) == []
    assert built.row(kernel, target)["status"] == "ok"


def test_bulk_store_with_full_wait(built):
    assert built.findings("bulk_full_wait", "sm_90") == []
    assert "cp.async.bulk.tensor" in built.assembly("bulk_full_wait", "sm_90")


def test_findings_name_the_line_of_the_flag(built):
    (finding,) = built.findings("no_barrier", "sm_90")
    line = int(finding.split(" line ")[1].split(":")[0])
    assert "atom.global.sys.release.exch" in built.assembly("no_barrier", "sm_90").splitlines()[line - 1]


@pytest.mark.parametrize("target", ALL)
def test_compiled_spins_are_bracketed_by_barriers(built, target):
    """The evidence that leaving out the barrier behind a wait changes nothing in compiled code."""
    (spin,) = spin_has_barriers(built.assembly("right", target), targets.get(target))
    assert spin.barrier_before
    assert spin.barrier_after
    text = " ".join(text for _, text in spin.lines)
    for word in (
        ("bar.sync", "ld.global.sys.acquire", "ld.shared") if target == "sm_90" else ("s_barrier", "load", "ds_read")
    ):
        assert word in text
    source = built.assembly("right", target).splitlines()
    assert all(words.split()[0] in source[line - 1] for line, words in spin.lines)


PTX = """
.visible .entry kernel(
	.param .u64 .ptr .global .align 16 kernel_param_0
)
.reqntid 128
{{
	.reg .pred %p<9>;
	ld.param.b64 %rd1, [kernel_param_0];
	{body}
	atom.global.sys.release.exch.b64 %rd5, [ %rd1 + 0 ], %rd3;
$L__SPIN:
	{spin}
	setp.lt.s64 %p2, %rd4, %rd3;
	@%p2 bra $L__SPIN;
	{after}
	ret;
}}
"""
_SPIN = "ld.global.sys.acquire.b64 %rd4, [ %rd1 + 0 ];"
_SM_90 = targets.get("sm_90")


def _ptx(body: str = "st.global.b32 [ %rd1 + 0 ], %r1;\n\tbar.sync 0;", spin: str = _SPIN, after: str = "") -> str:
    return PTX.format(body=body, spin=spin, after=after)


def test_hand_written_ptx_is_right():
    assert lint(_ptx(), _SM_90, "k") == []


_STORE = "st.global.b32 [ %rd1 + 0 ], %r1;\n\t"
_BULK = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 16;\n\tcp.async.bulk.commit_group;\n\t"
_LOOP = "$L__T:\n\tred.global.sys.release.add.b64 [ %rd1 + 8 ], %rd3;\n\t"
_BULK_WAIT = "cp.async.bulk.wait_group 0;\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        # A barrier that only some threads reach is none.
        (f"{_STORE}@%p1 bar.sync 0;", "no bar.sync"),
        # A path around the barrier.
        (f"{_STORE}@%p1 bra $L__OUT;\n\tbar.sync 0;\n$L__OUT:", "no bar.sync"),
        # A store behind the barrier, in a loop: the second round's flag follows it.
        (f"bar.sync 0;\n{_LOOP}{_STORE}@%p1 bra $L__T;\n\tbar.sync 0;", "no bar.sync"),
        # Complete, but nobody else waited for it.
        (f"{_BULK}{_BULK_WAIT}", "no bar.sync after cp.async.bulk.wait_group 0"),
        # One group may still be under way.
        (f"{_BULK}cp.async.bulk.wait_group 1;\n\tbar.sync 0;", "no cp.async.bulk.wait_group 0"),
        # Waits on one path only.
        (f"{_BULK}@%p1 bra $L__OUT;\n\t{_BULK_WAIT}$L__OUT:\n\tbar.sync 0;", "no cp.async.bulk.wait_group 0"),
    ],
)
def test_hand_written_ptx_is_wrong(body, words):
    (finding,) = lint(_ptx(body), _SM_90, "k")
    assert words in finding.message


def test_a_bulk_store_that_completes_before_the_barrier():
    assert lint(_ptx(f"{_BULK}{_BULK_WAIT}\tbar.sync 0;"), _SM_90, "k") == []


@pytest.mark.parametrize("poll", ["ld.volatile.global.b64", "ld.global.b64", "atom.global.sys.relaxed.add.b64"])
def test_polls_without_acquire(poll):
    findings = lint(_ptx(spin=f"{poll} %rd4, [ %rd1 + 0 ];"), _SM_90, "k")
    assert any("does not acquire" in finding.message for finding in findings)


def test_a_loop_that_counts_is_no_poll():
    """Loading in a loop is not polling: only a load that decides about leaving the loop is."""
    loop = "ld.global.b64 %rd9, [ %rd8 + 0 ];\n\tadd.s64 %rd4, %rd4, 1;"
    (finding,) = lint(_ptx(spin=loop), _SM_90, "k")
    assert finding.message.startswith(_NO_POLL)


def test_bare_spin_is_not_bracketed():
    (spin,) = spin_has_barriers(_ptx(), _SM_90)
    assert (spin.barrier_before, spin.barrier_after) == (False, False)
    (spin,) = spin_has_barriers(_ptx(spin=f"bar.sync 0;\n\t{_SPIN}"), _SM_90)
    assert (spin.barrier_before, spin.barrier_after) == (True, False)


def test_kernel_without_flags():
    silent = _ptx().replace("atom.global.sys.release.exch.b64 %rd5, [ %rd1 + 0 ], %rd3;", "")
    assert [f.message.split(":")[0] for f in lint(silent, _SM_90, "k")] == ["no flag is released anywhere"]
    assert lint(silent, _SM_90, "k", communicates=False) == []


AMD_TEXT = """
kernel:                                 ; @kernel
	global_store_dword v0, v1, s[0:1]
	{every_wave}
	s_and_saveexec_b64 s[2:3], vcc
	s_cbranch_execz .LBB0_2
; %bb.1:
	{one_wave}
	global_atomic_{flag}_x2 v[0:1], v[2:3], off{scope}
.LBB0_2:
	s_or_b64 exec, exec, s[2:3]
.LBB0_3:
	s_barrier
	global_load_dwordx2 v[4:5], v6, s[4:5] {bypass}
	s_waitcnt vmcnt(0)
	{invalidate}
	v_cmp_gt_i64_e32 vcc, s[10:11], v[4:5]
	s_cbranch_vccnz .LBB0_3
	s_endpgm
.Lfunc_end0:
"""
_GFX90A = {
    "scope": "",
    "bypass": "glc",
    "invalidate": "buffer_invl2\n\tbuffer_wbinvl1_vol",
    "write_back": "buffer_wbl2",
}
_GFX942 = {
    "scope": " sc1", "bypass": "sc0 sc1", "invalidate": "buffer_inv sc0 sc1", "write_back": "buffer_wbl2 sc0 sc1",
}  # fmt: skip
_WAIT = "s_waitcnt vmcnt(0)"


def _amd(words: dict[str, str], every_wave: list[str], one_wave: list[str], flag: str = "swap") -> str:
    waves = {"every_wave": "\n\t".join(every_wave), "one_wave": "\n\t".join(one_wave)}
    text = AMD_TEXT.format(**{**words, **waves, "flag": flag})
    return text.replace("WBL2", words["write_back"])


@pytest.mark.parametrize(("target", "words"), [("gfx90a", _GFX90A), ("gfx942", _GFX942)])
@pytest.mark.parametrize(
    ("every_wave", "one_wave", "expected"),
    [
        ([_WAIT, "s_barrier"], ["WBL2", _WAIT], []),
        (["WBL2", _WAIT, "s_barrier"], ["WBL2"], []),  # as `shmem.drain` does
        (["s_waitcnt lgkmcnt(0) vmcnt(0)", "s_barrier"], ["WBL2", _WAIT], []),
        # The other waves' stores are not waited for.
        (["s_barrier"], [_WAIT, "WBL2", _WAIT], [_VMCNT]),
        (["s_barrier", _WAIT], ["WBL2", _WAIT], [_VMCNT]),
        (["s_waitcnt vmcnt(1)", "s_barrier"], ["WBL2", _WAIT], [_VMCNT]),
        (["s_waitcnt lgkmcnt(0)", "s_barrier"], ["WBL2", _WAIT], [_VMCNT]),
        # The write-back may still be under way, or is none at all.
        ([_WAIT, "s_barrier"], ["WBL2"], [_WRITE_BACK]),
        ([_WAIT, "s_barrier"], [], ["no system-scope L2 write-back"]),
        # A store behind the barrier.
        ([_WAIT, "s_barrier", "global_store_dword v0, v1, s[0:1]"], ["WBL2", _WAIT], [_VMCNT]),
    ],
)
def test_hand_written_amd(target, words, every_wave, one_wave, expected):
    findings = [f.message for f in lint(_amd(words, every_wave, one_wave), targets.get(target), "k")]
    assert len(findings) == len(expected)
    assert all(words in finding for words, finding in zip(expected, findings, strict=True))


def test_any_atomic_behind_a_write_back_is_a_flag():
    bad = _amd(_GFX90A, ["s_barrier"], ["WBL2", _WAIT], flag="add")
    assert [_VMCNT in f.message for f in lint(bad, targets.get("gfx90a"), "k")] == [True]
    count = _amd(_GFX90A, ["s_barrier"], [], flag="add")  # a relaxed count: no flag at all
    assert [f.message.split(":")[0] for f in lint(count, targets.get("gfx90a"), "k")] == [
        "no flag is released anywhere"
    ]


def test_agent_scope_write_back_is_not_enough_on_gfx942():
    text = _amd({**_GFX942, "write_back": "buffer_wbl2 sc1"}, [_WAIT, "s_barrier"], ["WBL2", _WAIT])
    assert ["no system-scope L2 write-back" in f.message for f in lint(text, targets.get("gfx942"), "k")] == [True]


def test_invalidation_before_the_poll_has_returned():
    text = _amd(_GFX942, [_WAIT, "s_barrier"], ["WBL2", _WAIT])
    poll = "global_load_dwordx2 v[4:5], v6, s[4:5] sc0 sc1\n\t"
    (finding,) = lint(text.replace(f"{poll}{_WAIT}\n", f"{poll}\n"), targets.get("gfx942"), "k")
    assert finding.message == "no s_waitcnt vmcnt(0) between the poll and buffer_inv"

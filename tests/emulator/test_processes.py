"""Mode `processes`: right kernels stay right under late delivery, wrong ones do not, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import emulator
from emulator import heap

ROOT = Path(__file__).parents[2]
PROGRAM = f"{Path(__file__).parent / 'push_program.py'}::"


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, emulator.Ranks]]:
    made: dict[int, emulator.Ranks] = {n: emulator.Ranks(n, timeout_s=20, heap_bytes=1 << 20) for n in (1, 2, 4, 8)}
    yield made
    for pool in made.values():
        pool.close()


def tiles(pool: emulator.Ranks, broken: str = "", seed: int = 0, **changes: object) -> int:
    """Wrong elements over all ranks and calls."""
    calls, nic, skew = changes.get("calls", 2), changes.get("nic", False), changes.get("skew", 0.0)
    return sum(pool.run(PROGRAM + "exchange_tiles", calls, broken, nic, 6, 3, 64, skew, seed=seed))


@pytest.mark.parametrize("nic", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_right_kernel_is_right(pools: dict[int, emulator.Ranks], world_size: int, nic: bool) -> None:
    pool = pools[world_size]
    for seed in range(3):
        assert tiles(pool, seed=seed, nic=nic, calls=3, skew=0.003) == 0
        sent = 0 if world_size == 1 else 3 * 6  # calls x tiles, of each rank
        assert [(c.remote_stores, c.flags_delivered) for c in pool.counts] == [(sent, sent)] * world_size
        assert all(c.launches == 3 for c in pool.counts)


@pytest.mark.parametrize("broken", ["no wait", "flag first", "relaxed", "gpu scope", "no barrier", "plain flag"])
def test_wrong_kernel_gives_wrong_results(pools: dict[int, emulator.Ranks], broken: str) -> None:
    assert any(tiles(pools[2], broken, seed) for seed in range(8))


def test_unfenced_put_gives_wrong_results(pools: dict[int, emulator.Ranks]) -> None:
    assert any(tiles(pools[2], "no fence", seed, nic=True) for seed in range(8))


@pytest.mark.parametrize(
    "how",
    [
        "fence, barrier, relaxed flag",
        "barrier, fence, relaxed flag",
        "barrier, st.release",
        "counter, last one raises all",
    ],
)
def test_no_false_alarm(pools: dict[int, emulator.Ranks], how: str) -> None:
    assert [sum(pools[2].run(PROGRAM + "ordered", how, seed=seed)) for seed in range(8)] == [0] * 8


def test_the_same_kernel_without_order(pools: dict[int, emulator.Ranks]) -> None:
    assert any(sum(pools[2].run(PROGRAM + "ordered", "nothing", seed=seed)) for seed in range(8))


def test_descriptor_store_needs_its_own_wait(pools: dict[int, emulator.Ranks]) -> None:
    pool = pools[2]
    assert sum(sum(pool.run(PROGRAM + "descriptor", True, seed=seed)) for seed in range(8)) == 0
    assert any(sum(pool.run(PROGRAM + "descriptor", False, seed=seed)) for seed in range(8))


@pytest.mark.parametrize("world_size", [1, 4])
def test_put_signal_get_and_device_barrier(pools: dict[int, emulator.Ranks], world_size: int) -> None:
    pool = pools[world_size]
    assert sum(sum(pool.run(PROGRAM + "nvshmem_calls", True, seed=seed)) for seed in range(6)) == 0
    if world_size > 1:  # without the barrier a get may come before the put whose data it wants
        assert any(sum(pool.run(PROGRAM + "nvshmem_calls", False, seed=seed)) for seed in range(12))


def test_wrong_kernel_can_pass_without_the_adversary(pools: dict[int, emulator.Ranks]) -> None:
    """What shows that the adversary, and not luck, finds a flag that does not release."""
    benign = emulator.Options(deliver=256, pending=0, switch=64)
    wrong = [
        sum(pools[2].run(PROGRAM + "exchange_tiles", 2, "relaxed", seed=seed, options=benign)) for seed in range(8)
    ]
    assert wrong == [0] * 8


def test_addresses_differ_between_processes(pools: dict[int, emulator.Ranks]) -> None:
    results = pools[4].run(PROGRAM + "bases_and_pid")
    bases = [base for table, _, _ in results for base in table]
    assert len(set(bases)) == 16
    assert len({pid for _, pid, _ in results} | {os.getpid()}) == 5
    assert [gathered for _, _, gathered in results] == [[0, 10, 20, 30]] * 4


def test_more_work_groups_than_resident(pools: dict[int, emulator.Ranks]) -> None:
    with pytest.raises(emulator.TooManyWorkGroups, match=r"^rank 0: grid of count is 16; allowed: up to 4") as caught:
        pools[1].run(PROGRAM + "too_many", True)
    assert "\n" not in str(caught.value)
    assert pools[1].run(PROGRAM + "too_many", False) == [[i + 16 for i in range(16)]]


def test_hang_names_flag_line_and_value(pools: dict[int, emulator.Ranks]) -> None:
    source = Path(__file__).with_name("push_program.py").read_text().splitlines()
    line = next(i for i, text in enumerate(source, 1) if "while tl.atomic_add(flags + t" in text)
    start = time.monotonic()
    with pytest.raises(emulator.Hang) as caught:
        pools[2].run(PROGRAM + "exchange_tiles", 1, "no flag", timeout_s=1)
    assert time.monotonic() - start < 5
    for rank in range(2):
        for wg in range(3):
            assert f"rank {rank} work-group {wg} of push waits for flags[{wg}] = 0, at tests" in str(caught.value)
    assert f"push_program.py:{line} in push" in str(caught.value)
    assert tiles(pools[2]) == 0  # the pool starts anew


def test_hang_of_one_rank_in_a_barrier(pools: dict[int, emulator.Ranks]) -> None:
    with pytest.raises(emulator.Hang, match=r"rank 0 waits .* host barrier.* in lonely_barrier\nrank 1 has finished"):
        pools[2].run(PROGRAM + "lonely_barrier", timeout_s=0.5)


def test_hang_in_the_host_program(pools: dict[int, emulator.Ranks]) -> None:
    with pytest.raises(emulator.Hang, match=r"rank 0 is busy, at .*push_program.py:\d+ in spins_in_host"):
        pools[2].run(PROGRAM + "spins_in_host", timeout_s=0.5)


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        ("assertion", emulator.ProgramFailed, r"^rank [01] work-group 1 of failing: AssertionError: must be positive, at .*push_program.py:\d+ in failing$"),
        ("host_error", emulator.ProgramFailed, r"^rank 1: KeyError: 'nothing here', at .*push_program.py:\d+ in host_error"),
        ("foreign_pointer", emulator.BadAddress, r"is the heap of rank [01] as rank [01] maps it; .*in foreign$"),
        ("exits", emulator.RankDied, r"^rank 1 died: its process exited with status 3"),
        ("wild_pointer", emulator.RankDied, r"^rank 0 died: killed by signal 11 \(SIGSEGV\), at .*push_program.py:\d+ in foreign"),
    ],
)  # fmt: skip
def test_failures_name_the_rank(pools: dict[int, emulator.Ranks], program: str, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        pools[2].run(PROGRAM + program)
    assert re.search(text, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)  # the traceback is a note


def test_killed_rank_ends_the_run_at_once(pools: dict[int, emulator.Ranks], tmp_path: Path) -> None:
    shm = set(os.listdir("/dev/shm"))
    notes = tmp_path / "pids"

    def kill() -> None:
        while not notes.exists() or len(notes.read_text().split()) < 4:
            time.sleep(0.01)
        moment.append(time.monotonic())
        os.kill(pools[4].pids[2], signal.SIGKILL)

    moment: list[float] = []
    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(emulator.RankDied, match=r"^rank 2 died: killed by signal 9 \(SIGKILL\)$"):
        pools[4].run(PROGRAM + "sleeps", str(notes))
    killer.join()
    assert time.monotonic() - moment[0] < 1.0
    assert not [pid for pid in notes.read_text().split() if os.path.exists(f"/proc/{pid}")]
    assert set(os.listdir("/dev/shm")) == shm
    assert tiles(pools[4]) == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_caller(tmp_path: Path, how: signal.Signals) -> None:
    notes = tmp_path / "pids"
    code = f"import emulator; emulator.run({PROGRAM + 'sleeps'!r}, 2, args=({str(notes)!r},), heap_bytes=1 << 20)"
    caller = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not notes.exists() or len(notes.read_text().split()) < 2:
        assert caller.poll() is None, caller.stderr.read()
        time.sleep(0.05)
    os.killpg(caller.pid, how) if how == signal.SIGINT else caller.kill()  # an interrupt reaches the whole group
    caller.wait(10)
    pids = notes.read_text().split()
    end = time.monotonic() + 3
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    if how == signal.SIGINT:
        assert "KeyboardInterrupt" in caller.stderr.read()


def test_one_line_for_wrong_arguments(pools: dict[int, emulator.Ranks], tmp_path: Path) -> None:
    with pytest.raises(
        emulator.OutOfHeap,
        match=r"^rank 0: symmetric buffer big of 10485760 bytes; allowed: 1048576, what is left of 1048576 heap bytes",
    ):
        pools[1].run(PROGRAM + "big", 10 << 20)
    with pytest.raises(emulator.EmulatorError, match=r"^world_size is 0; allowed: 1 to 64$"):
        emulator.Ranks(0)
    with pytest.raises(emulator.EmulatorError, match=r"^mode is 'fast'; allowed: 'processes', 'replay'$"):
        emulator.run(PROGRAM + "big", 1, mode="fast")
    with pytest.raises(emulator.EmulatorError, match=r"allowed: a function at the top level of a module"):
        pools[1].run(lambda symm: None)
    with pytest.raises(emulator.EmulatorError, match=r"has no function 'missing'"):
        pools[1].run(PROGRAM + "missing")
    with pytest.raises(emulator.EmulatorError, match=r"deliver is 300; allowed: 0 to 256, or None"):
        emulator.Options(deliver=300)


def test_heaps_that_cannot_fit() -> None:
    with pytest.raises(
        emulator.OutOfHeap, match=r"^2 heaps of heap_bytes = \d+; allowed: \d+ each, the memory available$"
    ):
        heap.create(1 << 50, 2)
    with pytest.raises(emulator.EmulatorError, match=r"^heap_bytes is 0; allowed: 1 or more$"):
        heap.create(0)


def test_heap_without_memfd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the kernel gives no anonymous shared memory, an unlinked file does."""

    def refuse(*_: object) -> int:
        raise OSError("no memfd")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(heap.tempfile, "tempdir", str(tmp_path))
    fd = heap.create(1 << 16)
    assert os.listdir(tmp_path) == []
    heaps = heap.Heaps([fd, fd], 1 << 16, 5)
    heaps.control(0).progress = 7
    assert heaps.control(1).progress == 7
    assert heaps.bases[0] != heaps.bases[1]
    os.close(fd)

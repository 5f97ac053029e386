"""Tasks in forked children: answers, errors, crashes, slow ones; the others go on, and nothing is left behind."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from emulator import EmulatorError
from emulator.forks import Lost, forked


def double(x: int) -> int:
    return 2 * x


def refuse(x: int) -> int:
    raise EmulatorError(f"x is {x}; allowed: another")


def fail() -> None:
    raise KeyError("no such thing")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def sleep(pid: Path) -> None:
    pid.write_text(str(os.getpid()))
    time.sleep(60)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("jobs", [1, 3, 50])
def test_answers_come_with_their_index(jobs: int) -> None:
    assert dict(forked([partial(double, x) for x in range(20)], jobs, 30)) == {x: 2 * x for x in range(20)}
    assert list(forked([], jobs, 30)) == []


def test_large_answers_pass() -> None:
    assert dict(forked([lambda: bytes(1 << 22)], 1, 30)) == {0: bytes(1 << 22)}


def test_lost_tasks_do_not_stop_the_others(tmp_path: Path) -> None:
    slow = partial(sleep, tmp_path / "pid")
    tasks = [partial(double, 1), crash, partial(refuse, 7), leave, fail, slow, partial(double, 2)]
    began = time.monotonic()
    answers = dict(forked(tasks, 2, 3.0))
    assert time.monotonic() - began < 30
    assert (answers[0], answers[6]) == (2, 4)
    assert answers[1] == answers[3] == Lost("its process ended without a word")
    assert answers[2].why == "x is 7; allowed: another" and isinstance(answers[2].error, EmulatorError)
    assert "KeyError: 'no such thing'" in answers[4].why and answers[4].error is None
    assert answers[5] == Lost("no answer within 3 s")
    assert not alive(int((tmp_path / "pid").read_text()))


def test_an_answer_that_cannot_be_sent_is_lost() -> None:
    assert isinstance(dict(forked([lambda: lambda: 1, partial(double, 2)], 1, 30))[0], Lost)


def test_children_end_when_the_caller_stops(tmp_path: Path) -> None:
    with_one_slow = forked([partial(sleep, tmp_path / "pid"), partial(double, 4)], 2, 60)
    assert next(with_one_slow) == (1, 8)
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    with_one_slow.close()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_jobs_are_checked() -> None:
    with pytest.raises(EmulatorError, match="jobs is 0; allowed: 1 or more"):
        next(forked([crash], 0, 1))


def test_what_a_child_changes_is_gone() -> None:
    os.environ.pop("CHANGED_BY_A_CHILD", None)
    assert dict(forked([lambda: os.environ.setdefault("CHANGED_BY_A_CHILD", "1")], 1, 30)) == {0: "1"}
    assert "CHANGED_BY_A_CHILD" not in os.environ

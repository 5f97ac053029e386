"""What goes wrong around a run: interrupts, a second run, a full disk, no home, no network. Each ends in one line or goes on."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from artifact.files import write_text

TARGET = "results/emulator/figures/tasks.svg"
ARGUMENTS = (TARGET, "--config", "backend=emulator")


def start(workflow, *arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=workflow.folder, env=workflow.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, **options,
    )  # fmt: skip


@pytest.fixture
def slow(workflow):
    """A task graph that takes long to draw, and a note when drawing has begun."""
    path, begun = workflow.folder / "artifact" / "tasks.py", workflow.folder / "begun"
    text = path.read_text()
    (workflow.folder / TARGET).unlink(missing_ok=True)
    path.write_text(text.replace("def draw() -> bytes:", "def draw() -> bytes:\n    import time; Path('begun').touch(); time.sleep(300)"))  # fmt: skip
    yield begun
    path.write_text(text)
    begun.unlink(missing_ok=True)


def wait_for(path, run) -> None:
    until = time.monotonic() + 90
    while not path.exists():
        assert run.poll() is None and time.monotonic() < until, run.stdout.read()[-2000:]
        time.sleep(0.1)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on(workflow, slow, sent):
    run = start(workflow, *ARGUMENTS)
    wait_for(slow, run)
    os.killpg(run.pid, sent)
    run.communicate(timeout=60)
    assert run.returncode != 0
    assert not (workflow.folder / TARGET).exists()
    (workflow.folder / "artifact" / "tasks.py").write_text(
        (workflow.folder / "artifact" / "tasks.py").read_text().replace("time.sleep(300)", "pass")
    )
    if sent == signal.SIGKILL:  # what the README says to do after a power cut
        assert "lock" in workflow.run(*ARGUMENTS).stderr.lower()
        assert workflow.run("--unlock").returncode == 0
    done = workflow.run(*ARGUMENTS)
    assert done.returncode == 0 and (workflow.folder / TARGET).read_text().rstrip().endswith("</svg>"), done.stderr


def test_a_second_run_in_the_folder_is_refused(workflow, slow):
    first = start(workflow, *ARGUMENTS)
    try:
        wait_for(slow, first)
        second = workflow.run(*ARGUMENTS)
        text = second.stdout + second.stderr
        assert second.returncode != 0 and "Traceback" not in text
        assert len([line for line in text.splitlines() if "Directory cannot be locked" in line]) == 1
        assert first.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGINT)
        first.communicate(timeout=60)


def test_a_full_disk_is_one_line_and_leaves_no_half_file(workflow):
    """The limit on a file's size stands in for the disk: the same call fails, without privileges."""
    out = workflow.folder / "full" / "tasks.svg"

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "artifact.tasks", "--out", str(out)],
        cwd=workflow.folder, env=workflow.environment | {"MPLCONFIGDIR": str(workflow.folder / "full")}, capture_output=True, text=True,
        check=False, preexec_fn=limit,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode != 0 and errors == [f"error: cannot write {out}: File too large"], done.stderr
    assert "Traceback" not in done.stderr and not list(out.parent.glob("*.svg")) and not list(out.parent.glob(".*.svg"))


def test_a_small_file_system_is_one_line(tmp_path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs privileges")
    script = (
        'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "import sys; from pathlib import Path; from artifact import files\n'
        "try: files.write_bytes(Path(sys.argv[1], 'rows.csv'), bytes(1 << 20))\n"
        'except files.ArtifactError as error: print(error); print(*Path(sys.argv[1]).iterdir())" "$1"'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout == f"cannot write {tmp_path}/rows.csv: No space left on device\n\n", done.stderr


def test_results_that_cannot_be_written_are_one_line(tmp_path):
    from artifact.errors import ArtifactError

    (tmp_path / "results").write_text("a file where a folder should be")
    with pytest.raises(ArtifactError) as error:
        write_text(tmp_path / "results" / "emulator" / "rows.csv", "")
    assert str(error.value) == f"cannot write {tmp_path}/results/emulator/rows.csv: Not a directory"


def test_no_home(workflow):
    (workflow.folder / TARGET).unlink(missing_ok=True)
    environment = {"PATH": workflow.environment["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *ARGUMENTS], cwd=workflow.folder, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0 and (workflow.folder / TARGET).is_file(), done.stderr[-2000:]


def test_no_network(workflow):
    """The kick-the-tires target's parts that start processes: operators and machine listed without a network; all of it where FUSEDCC_LONG is set."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network namespace needs privileges")
    targets = ["results/emulator/hardware.json", "results/build/operators.csv"]
    if os.environ.get("FUSEDCC_LONG"):
        targets = ["smoke"]
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "snakemake", *targets, "--forceall", "--config", "backend=emulator"],
        cwd=workflow.folder, env=workflow.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]

"""What a change makes run again, in a copy whose outputs are all made up and marked as made; and a small target for real."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def finished(workflow):
    for name in workflow.outputs("all"):
        path = workflow.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    done = workflow.run("--touch", "all")
    assert done.returncode == 0, done.stderr[-2000:]
    return workflow


def edited(workflow, name: str) -> set[str]:
    """Rules that an edit of a file makes run again; the edit is taken back."""
    path: Path = workflow.folder / name
    text = path.read_text()
    path.write_text(text + "\n# edited\n")
    try:
        return workflow.planned("all")
    finally:
        path.write_text(text)
        workflow.run("--touch", "all")


def test_a_finished_run_has_nothing_to_do(finished):
    assert finished.planned("all") == set()


def test_an_edited_figure_is_drawn_again_alone(finished):
    assert edited(finished, "figures/order_skew.py") == {"fig_order_skew", "all"}


def test_an_edited_kernel_is_verified_and_built_again_with_what_follows(finished):
    again = edited(finished, "kernels/gemv_device.py")
    assert {
        "verify_cases",
        "build_kernels",
        "judge_claims",
        "table_claims",
        "table_verification",
        "table_kernel_resources",
    } <= again
    assert "fig_gemv_all_reduce" not in again  # measured time comes from the record


def test_an_edited_emulator_does_not_rebuild(finished):
    again = edited(finished, "emulator/numerics.py")
    assert "verify_cases" in again and "build_kernels" not in again and "model_intranode" not in again


def test_the_record_is_no_output(finished):
    assert not any(name.startswith("experiments/") for name in finished.outputs("all"))


def test_a_small_target_runs_and_then_has_nothing_to_do(workflow):
    target = "results/emulator/figures/tasks.svg"
    (workflow.folder / target).unlink(missing_ok=True)
    done = workflow.run(target, "--config", "backend=emulator")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-2000:]
    assert "backend: emulator" in done.stdout
    assert (workflow.folder / "results/emulator/logs/rule_graph.log").read_text().startswith("tasks: ")
    assert workflow.planned(target) == set()

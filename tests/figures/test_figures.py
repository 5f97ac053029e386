"""Figures and tables: same bytes from the same rows, no mixed backends, no numbers of the paper outside claims.yaml."""

import ast
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from artifact import catalogue
from figures import CATALOG, inputs, operator_times, style
from figures.__main__ import main as draw_main
from paper_tables import CATALOG as TABLES
from paper_tables.__main__ import main as table_main

ROOT = Path(__file__).parents[2]
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")


def timing() -> pd.DataFrame:
    """Two GPUs: every operator, two cases, the arms that figures tell apart, eight samples each."""
    rng = np.random.default_rng(3)
    arms = (
        ("fused.peer", "fused", "out"),
        ("own", "compute", "none"),
        ("own+nccl", "bulk", "none"),
        ("linear+nccl", "bulk", "none"),
        ("own+push", "push", "out"),
    )
    return pd.DataFrame(
        {"operator": operator, "case": case, "arm": arm, "strategy": strategy, "face": face, "mode": "graph", "backend": "gpu", "machine": "h200-x2",
         "world_size": 2, "dtype": "bfloat16", "sample": sample, "time_us": 20 + 5 * at + rng.random(), "limit_us": 10.0, "bytes_read": 1e6,
         "bytes_sent": 1e3, "flops": 1e6, "status": "ok", "reason": ""}
        for operator in OPERATORS for case in ("small", "large") for at, (arm, strategy, face) in enumerate(arms) for sample in range(8)
    )  # fmt: skip


def model_frames() -> dict[str, pd.DataFrame]:
    """The timing model's files, a few rows each."""
    key = {"backend": "model", "world_size": 4}
    torus = {"backend": "model", "machine": "mi210-2node", "workload": "dlrm", "topology": "torus2d", "scaling": "weak"}
    reduction = [
        key | {"machine": m, "operator": o, "case": c, "bulk_us": 10, "fused_us": 8, "reduction_percent": 20, "low_percent": 10, "high_percent": 30}
        for m in ("mi210-x4", "mi210-2node") for o in OPERATORS for c in ("a", "b")
    ]  # fmt: skip
    intranode = [
        key | {"operator": o, "case": "a", "arm": s, "strategy": s, "face": "none", "mode": "model", "machine": "mi210-x4", "dtype": "float16",
               "sample": 0, "time_us": 10 - n, "limit_us": 5, "bytes_read": 1, "bytes_sent": 1, "flops": 1, "status": "ok", "reason": ""}
        for o in OPERATORS for n, s in enumerate(("bulk", "decomposed", "fused"))
    ]  # fmt: skip
    embedding = key | {"operator": "embedding_all_to_all"}
    return {
        "reduction": pd.DataFrame(reduction),
        "intranode": pd.DataFrame(intranode),
        "skew": pd.DataFrame(
            [embedding | {"machine": "mi210-2node", "case": "a", "order": o, "late_us": 0, "rank": 0, "end_us": 9, "skew_percent": s} for o, s in (("remote_first", 1.5), ("oblivious", 8.5))]
        ),
        "occupancy": pd.DataFrame(
            [embedding | {"machine": "mi210-x4", "case": "1024|64", "strategy": s, "occupancy_percent": p, "wgs_per_cu": 1, "time_us": 100 / p} for s in ("compute", "fused") for p in (25, 50)]
        ),
        "traffic": pd.DataFrame(
            [embedding | {"machine": m, "case": "1024|64", "strategy": s, "time_us": t, "link_gbps": t} for m in ("mi210-x4", "mi210-2node") for s in ("bulk", "fused") for t in (1, 2, 3)]
        ),
        "assumptions": pd.DataFrame(
            [embedding | {"machine": m, "case": c, "assumption": a, "bulk_us": 9, "fused_us": 8, "reduction_percent": 11.5} for m in ("mi210-x4", "h200-x8") for c in ("a", "b") for a in ("as assumed", "destinations interleaved", "both")]
        ),
        "scaleout": pd.DataFrame(
            [torus | {"nodes": n, "scenario": "none", "scope": "iteration", "strategy": s, "component": c, "time_us": 5.5} for n in (16, 128) for s in ("bulk", "fused") for c in ("total", "embedding", "top_mlp")]
        ),
        "scaleout_reduction": pd.DataFrame(
            [torus | {"topology": t, "nodes": n, "scenario": s, "scope": scope, "bulk_us": 9, "fused_us": 8, "reduction_percent": 11.5} for n, t, s, scope in (
                (16, "torus2d", "none", "iteration"), (128, "torus2d", "none", "iteration"), (128, "torus2d", "none", "embedding_all_to_all"),
                (128, "torus2d", "one link at half bandwidth", "iteration"), (128, "fat_tree", "none", "iteration"), (128, "fat_tree", "none", "embedding_all_to_all"))]
        ),
        "scaleout_sweep": pd.DataFrame(
            [torus | {"nodes": 128, "scope": "iteration", "pooling": p, "mlp_width": w, "bulk_us": 9, "fused_us": 8, "reduction_percent": 11.5} for p in (10, 70) for w in (341, 682)]
        ),
        "validation": pd.DataFrame(
            [{"backend": "model", "machine": "h200-x1", "operator": o, "case": "a", "strategy": "compute", "world_size": 1, "dtype": "bfloat16", "half": h, "measured_us": 10, "predicted_us": 11, "error_percent": 10} for o in OPERATORS for h in ("fit", "judge")]
        ),
        "validation_summary": pd.DataFrame([{"backend": "model", "half": "compute", "machine": "h200-x1", "points": 3, "status": "ok", "verdict": "validated (compute kernels): mean error 3.4 % (target 12), 100 % of points within 25 % (target 95)"}]),
        "simulation_setup": pd.DataFrame([{"kind": "network", "name": "torus2d", "field": "link", "value": 25.0, "unit": "GB/s", "source": "assumed"}]),
        "machine_profiles": pd.DataFrame([{"machine": "mi210-x4", "field": "gpus", "value": 4, "unit": "1", "source": "assumed"}]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "model").mkdir()
    for name, frame in model_frames().items():
        frame.to_csv(folder / "model" / f"{name}.csv", index=False)
    timing().to_csv(folder / "timing.csv", index=False)
    return folder


def test_catalogue_and_modules_agree() -> None:
    assert set(catalogue.FIGURES) == set(CATALOG)
    assert {name.removeprefix("table_") for name in catalogue.TABLES} == set(TABLES)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_redraw_from_its_csv_is_the_same_file(name: str, data: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    common = [name, "--claims", str(ROOT / "artifact" / "claims.yaml")]
    assert (
        draw_main([*common, "--out", str(first), "--model", str(data / "model"), "--timing", str(data / "timing.csv")])
        == 0
    )
    assert draw_main([*common, "--out", str(second), "--rows", str(first / f"{name}.csv")]) == 0
    for suffix in ("pdf", "png", "svg"):
        one, two = ((folder / f"{name}.{suffix}").read_bytes() for folder in (first, second))
        assert one == two and len(one) > 2000, suffix


def test_a_series_of_two_backends_is_refused() -> None:
    rows = pd.DataFrame({"backend": ["gpu", "model"], "machine": "x"})
    with pytest.raises(ValueError, match="mixes backends gpu, model"):
        style.one_backend(rows)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_figure_says_where_its_numbers_come_from(name: str, data: Path) -> None:
    module = import_module(f"figures.{CATALOG[name]}")
    made = module.draw(
        module.rows(inputs.load(data / "model", [data / "timing.csv"], ROOT / "artifact" / "claims.yaml"))
    )
    label = made.get_supxlabel()
    assert label.startswith("backend: ") and "machine: " in label.replace("\n", " ")


def test_series_take_the_fastest_arm_and_the_baselines_apart() -> None:
    rows = operator_times.rows(inputs.Inputs(timing=timing()), "gemv_all_reduce")
    arms = rows[rows["case"] == "small"].set_index("series")["arm"].to_dict()
    assert arms == {
        "fused": "fused.peer",
        "own": "own",
        "bulk_own": "own+nccl",
        "library": "linear+nccl",
        "other": "own+push",
    }


def test_a_missing_model_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw_main(["fig_scale_out", "--out", str(tmp_path), "--model", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == "error: model file scaleout_reduction.csv is missing; make it with: snakemake model\n"
    )


def test_tables_say_the_same_in_every_form(data: Path, tmp_path: Path) -> None:
    for name in ("table_strategies", "table_simulation_setup"):
        assert table_main([name, "--out", str(tmp_path), "--model", str(data / "model")]) == 0
        rows = len(pd.read_csv(tmp_path / f"{name}.csv"))
        assert len((tmp_path / f"{name}.md").read_text().splitlines()) == rows + 2
        assert (tmp_path / f"{name}.html").read_text().count("<tr") == rows + 1
        tex = (tmp_path / f"{name}.tex").read_text()
        assert r"\toprule" in tex and tex.count(r"\\") == rows + 1


def paper_numbers() -> set[float]:
    """Numbers of the paper that are telling: not small whole ones that occur everywhere."""
    document = yaml.safe_load((ROOT / "artifact" / "claims.yaml").read_text())
    found = {
        float(v["value"])
        for c in document["claims"]
        for v in c.get("paper", [])
        if isinstance(v.get("value"), int | float)
    }
    return {v for v in found if v > 10 or v % 1}


@pytest.mark.parametrize("package", ["figures", "paper_tables"])
def test_no_number_of_the_paper_is_typed_in(package: str) -> None:
    numbers = paper_numbers()
    assert len(numbers) >= 8
    for path in sorted((ROOT / package).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, int | float)
                and not isinstance(node.value, bool)
            ):
                assert float(node.value) not in numbers, f"{path.name}:{node.lineno} has {node.value}"


def test_every_module_has_what_the_command_line_calls() -> None:
    for module in CATALOG.values():
        found = import_module(f"figures.{module}")
        assert callable(found.rows) and callable(found.draw) and found.__doc__
    for module in TABLES:
        assert callable(import_module(f"paper_tables.{module}").rows)

"""Case files: what is committed loads, and a bad row is refused with one line that says where."""

from pathlib import Path

import pytest

from experiments import cases
from experiments.errors import ExperimentError

GEMV = "case,model,source,m,k,batch,dtype\n"


@pytest.mark.parametrize("operator", cases.OPERATORS)
def test_committed_cases_cover_what_is_promised(operator: str) -> None:
    timing = cases.timing(operator)
    assert all(c["model"] and c["source"] for c in timing)
    full, sample = cases.verification(operator, sample=False), cases.verification(operator, sample=True)
    assert len(sample) < len(full) / 3
    variant = "algorithm" if operator == "gemv_all_reduce" else "transport"
    strata = {(c["world_size"], c["dtype"], c[variant]) for c in full}
    assert {(c["world_size"], c["dtype"], c[variant]) for c in sample} == strata
    assert len({c["seed"] for c in full}) == len(full)


def test_timing_cases_of_gemv_span_the_decode_sizes() -> None:
    sizes = [c["m"] * c["k"] * (4 if c["dtype"] == "float32" else 2) for c in cases.timing("gemv_all_reduce")]
    assert min(sizes) >= 16e6
    assert max(sizes) <= 0.55e9
    assert {c["batch"] for c in cases.timing("gemv_all_reduce")} == {1, 4, 8}


def test_world_size_selects(tmp_path: Path) -> None:
    assert {c["world_size"] for c in cases.verification("gemv_all_reduce", False, 4)} == {4}
    with pytest.raises(ExperimentError, match="world_size is 3; allowed: 1, 2, 4 or 8"):
        cases.verification("gemv_all_reduce", False, 3)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("a,x,y,0,4,1,float32", "bad.csv, line 2: m is '0'; allowed: a whole number from 1"),
        ("a,x,y,4,4,9,float32", "line 2: batch is '9'; allowed: a whole number from 1 to 8"),
        ("a,x,y,4,4,1,float64", "line 2: dtype is 'float64'; allowed: float32, bfloat16, float16"),
        ("a,x,y,4,1e3,1,float32", "line 2: k is '1e3'"),
        ("a,x,y,4,4,1", "line 2 is 'a row of another length'; allowed: 7 cells"),
        (",x,y,4,4,1,float32", "line 2: case is ''; allowed: some text"),
        ("a,x,y,4,4,1,float32\na,x,y,5,4,1,float32", "case in bad.csv is 'a'; allowed: each name once"),
        ("", "rows of bad.csv is 0; allowed: at least one"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: str, complaint: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(GEMV + row + "\n" * bool(row))
    with pytest.raises(ExperimentError) as caught:
        cases.timing("gemv_all_reduce", path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_columns_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("case,m\na,1\n")
    with pytest.raises(ExperimentError, match=r"columns of bad.csv is 'case, m'"):
        cases.timing("gemv_all_reduce", path)
    with pytest.raises(ExperimentError, match=r"case file is 'none.csv'"):
        cases.timing("gemv_all_reduce", tmp_path / "none.csv")

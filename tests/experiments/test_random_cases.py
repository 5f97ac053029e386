"""Random correctness cases: shapes, dtypes, transports and skews that nobody chose. A few here; for a longer search

FUSEDCC_EXAMPLES=500 python -m pytest tests/experiments/test_random_cases.py

Hypothesis shrinks a counterexample to the smallest case that fails.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import emulator
from experiments.verify import program
from kernels.plan import ORDERS

EXAMPLES = int(os.environ.get("FUSEDCC_EXAMPLES", "4"))
WORLDS = (2, 4)
FLAG = st.integers(0, 1)
COMMON = {
    "case": st.just("random"),
    "dtype": st.sampled_from(["float32", "bfloat16", "float16"]),
    "world_size": st.sampled_from(WORLDS),
    "calls": st.integers(1, 4),
    "skew_us": st.integers(0, 1500),
    "changing": FLAG,
    "seed": st.integers(0, 10_000),
    "fenced": FLAG,
    "order": st.sampled_from(ORDERS),
}
TRANSPORT = st.sampled_from(["peer", "staged", "rdma"])
CASES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "gemv_all_reduce": {
        "m": st.integers(1, 90),
        "k": st.integers(1, 300),
        "batch": st.integers(1, 8),
        "algorithm": st.sampled_from(["two_phase", "one_shot"]),
        "transport": st.sampled_from(["peer", "rdma"]),
        "bias": FLAG,
        "residual": FLAG,
    },
    "embedding_all_to_all": {
        "global_batch": st.integers(1, 20),
        "tables": st.integers(1, 3),
        "rows": st.integers(1, 30),
        "dim": st.integers(1, 70),
        "pooling": st.integers(0, 4),
        "bags": st.sampled_from(["fixed", "ragged"]),
        "mode": st.sampled_from(["sum", "mean"]),
        "weighted": FLAG,
        "index_dtype": st.sampled_from(["int32", "int64"]),
        "transport": TRANSPORT,
    },
    "gemm_all_to_all": {
        "m": st.integers(1, 70),
        "n": st.integers(1, 70),
        "k": st.integers(1, 80),
        "experts": st.integers(1, 3),
        "split": st.sampled_from(["even", "uneven", "empty", "one"]),
        "scaled": FLAG,
        "transport": TRANSPORT,
    },
}


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, emulator.Ranks]]:
    with ExitStack() as stack:
        yield {n: stack.enter_context(emulator.Ranks(n, heap_bytes=1 << 27)) for n in WORLDS}


@pytest.mark.parametrize("operator", CASES)
def test_no_counterexample(pools: dict[int, emulator.Ranks], operator: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize="FUSEDCC_EXAMPLES" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.fixed_dictionaries(COMMON | CASES[operator]))
    def search(case: dict[str, Any]) -> None:
        assume((case.get("algorithm"), case["transport"]) != ("one_shot", "rdma"))  # one_shot has peer only
        assume((case["order"], case["transport"]) != ("interleaved", "rdma"))
        ranks = pools[case["world_size"]]
        wrong = [r for records in ranks.run(program.run, operator, case) for r in records if not r["ok"]]
        assert not wrong, f"{operator} {case}: {wrong[0]}"

    search()

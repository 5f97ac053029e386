"""Every checker on synthetic evidence that should pass, fail, be inconclusive, or be missing."""

import pandas as pd
import pytest
import synthetic_rows as rows

from artifact import checkers, claims
from artifact.evidence import Evidence
from artifact.verdicts import Status

CLAIMS = {c.id: c for c in claims.load().claims}
FUNCTIONAL = ["embedding_all_to_all", "gemm_all_to_all"]


def emulator(**parts) -> Evidence:
    return Evidence("emulator", **parts)


def measured(ratios, machine="h200-x2", **options) -> Evidence:
    return Evidence("gpu", measured=rows.timing(ratios, machine=machine, **options))


def faster(evidence, claim="P3"):
    return checkers.faster(CLAIMS[claim], evidence, operator="gemv_all_reduce")


class TestFaster:
    def test_missing(self):
        found = faster(emulator())
        assert str(found) == "not evaluated: needs 2 GPUs with peer access"

    def test_rows_of_another_operator_are_missing(self):
        found = faster(Evidence("gpu", measured=rows.timing({"a": 0.8}, operator="gemm_all_to_all")))
        assert found.status is Status.NOT_EVALUATED

    def test_faster_everywhere_on_another_machine_is_a_trend(self):
        found = faster(measured({"a": 0.87, "b": 0.8, "c": 0.9}))
        assert found.status is Status.TREND and "faster in 3" in found.detail and "best baseline" in found.detail

    def test_the_size_counts_on_the_papers_platform_only(self):
        platform = CLAIMS["P3"].platform
        assert faster(measured({"a": 0.87, "b": 0.86}, machine=platform)).status is Status.REPRODUCED
        assert faster(measured({"a": 0.5, "b": 0.5}, machine=platform)).status is Status.TREND

    def test_mixed_is_inconclusive(self):
        assert faster(measured({"a": 0.8, "b": 1.1, "c": 0.9, "d": 1.0})).status is Status.INCONCLUSIVE

    def test_noise_is_inconclusive(self):
        assert faster(measured({"a": 0.995, "b": 1.0}, noise=0.1)).status is Status.INCONCLUSIVE

    def test_slower_is_contradicted(self):
        assert faster(measured({"a": 1.2, "b": 1.1, "c": 0.9})).status is Status.CONTRADICTED

    def test_too_few_samples_prove_nothing(self):
        assert faster(measured({"a": 0.5}, samples=4)).status is Status.INCONCLUSIVE

    @pytest.mark.parametrize(
        "column, value", [("backend", "emulator"), ("backend", "model"), ("mode", "eager"), ("status", "failed")]
    )
    def test_only_graph_replays_on_gpus_count(self, column, value):
        evidence = Evidence("gpu", measured=rows.timing({"a": 0.5}).assign(**{column: value}))
        assert faster(evidence).status is Status.NOT_EVALUATED

    def test_our_own_compute_kernel_is_not_the_vendors(self):
        frame = rows.timing({"a": 0.8})
        found = faster(Evidence("gpu", measured=frame[frame["arm"] != "linear+nccl"]))
        assert found.status is Status.NOT_EVALUATED


class TestModelReduction:
    def judge(self, percents, band=3.0):
        evidence = emulator(model={"reduction": rows.reduction(percents, "gemv_all_reduce", "mi210-x4", band)})
        return checkers.model_reduction(CLAIMS["P3"], evidence, "gemv_all_reduce", "mi210-x4").status

    def test_missing(self):
        assert (
            checkers.model_reduction(CLAIMS["P3"], emulator(), "gemv_all_reduce", "mi210-x4").status
            is Status.NOT_EVALUATED
        )

    def test_verdicts(self):
        assert self.judge([10.0, 15.0, 14.0]) is Status.MODEL_AGREES
        assert self.judge([40.0, 45.0]) is Status.MODEL_AGREES_SIZE
        assert self.judge([40.0, 45.0], band=35.0) is Status.MODEL_AGREES
        assert self.judge([10.0, -5.0, -4.0]) is Status.MODEL_DISAGREES


SIMULATION = {"workload": "w", "topology": "torus2d", "nodes": 128}


class TestScaleOut:
    def judge(self, percent):
        row = {
            "backend": "model", "machine": "m", "workload": "w", "topology": "torus2d", "nodes": 128, "scaling": "weak", "scope": "iteration", "scenario": "none",
            "reduction_percent": percent,
        }  # fmt: skip
        return checkers.scale_out(
            CLAIMS["P5"], emulator(model={"scaleout_reduction": pd.DataFrame([row])}), **SIMULATION
        ).status

    def test_verdicts(self):
        assert self.judge(18.0) is Status.REPRODUCED_SIMULATED
        assert self.judge(3.0) is Status.MODEL_AGREES_SIZE
        assert self.judge(-1.0) is Status.MODEL_DISAGREES
        assert checkers.scale_out(CLAIMS["P5"], emulator(), **SIMULATION).status is Status.NOT_EVALUATED


class TestFunctional:
    def zero_copy(self, frame):
        return checkers.zero_copy(CLAIMS["P6"], emulator(verify=frame), operators=FUNCTIONAL).status

    def test_zero_copy(self):
        assert self.zero_copy(rows.verify(FUNCTIONAL)) is Status.REPRODUCED
        assert self.zero_copy(rows.verify(FUNCTIONAL, status="failed")) is Status.CONTRADICTED
        assert self.zero_copy(rows.verify(FUNCTIONAL, status="missing")) is Status.INCONCLUSIVE
        assert self.zero_copy(rows.verify(FUNCTIONAL, stores=0)) is Status.CONTRADICTED
        assert self.zero_copy(rows.verify(FUNCTIONAL[:1])) is Status.NOT_EVALUATED
        assert self.zero_copy(rows.verify(FUNCTIONAL, transport="rdma")) is Status.NOT_EVALUATED
        assert self.zero_copy(None) is Status.NOT_EVALUATED

    def operators(self, faces=("out", "owned"), **parts):
        listed = pd.DataFrame(
            [{"operator": o, "torch_operator": o, "face": f, "signature": "s"} for o in FUNCTIONAL for f in faces]
        )
        build = rows.resources(dict.fromkeys(FUNCTIONAL, (1.0, 1.0)))
        evidence = emulator(**{"verify": rows.verify(FUNCTIONAL), "operators": listed, "resources": build, **parts})
        return checkers.operators(CLAIMS["P8"], evidence, operators=FUNCTIONAL).status

    def test_operators(self):
        assert self.operators() is Status.REPRODUCED
        assert self.operators(faces=("owned",)) is Status.CONTRADICTED
        assert (
            self.operators(resources=rows.resources(dict.fromkeys(FUNCTIONAL, (1.0, 1.0)), status="failed"))
            is Status.CONTRADICTED
        )
        assert self.operators(resources=rows.resources({FUNCTIONAL[0]: (1.0, 1.0)})) is Status.CONTRADICTED
        assert self.operators(resources=None) is Status.NOT_EVALUATED
        assert self.operators(verify=rows.verify(FUNCTIONAL, status="failed")) is Status.CONTRADICTED


class TestTraffic:
    def judge(self, fused, bulk):
        frame = pd.DataFrame(
            [
                {
                    "operator": "o",
                    "case": "c",
                    "machine": "m",
                    "backend": "model",
                    "world_size": 2,
                    "strategy": s,
                    "time_us": float(i),
                    "link_gbps": v,
                }
                for s, values in (("fused", fused), ("bulk", bulk))
                for i, v in enumerate(values)
            ]
        )
        return checkers.link_traffic(CLAIMS["P7"], emulator(model={"traffic": frame})).status

    def test_verdicts(self):
        assert self.judge([1, 1, 1, 1], [0, 0, 0, 4]) is Status.MODEL_AGREES
        assert self.judge([0, 5, 0, 0], [0, 0, 2, 2]) is Status.MODEL_DISAGREES
        assert checkers.link_traffic(CLAIMS["P7"], emulator()).status is Status.NOT_EVALUATED


class TestSkew:
    def judge(self, first, oblivious):
        frame = pd.DataFrame(
            [
                {
                    "operator": "o",
                    "case": f"c{i}",
                    "machine": "m",
                    "order": order,
                    "late_us": 0.0,
                    "rank": 0,
                    "skew_percent": value,
                }
                for order, values in (("remote_first", first), ("oblivious", oblivious))
                for i, value in enumerate(values)
            ]
        )
        return checkers.order_skew(CLAIMS["P9"], emulator(model={"skew": frame}), machine="m", operator="o").status

    def test_verdicts(self):
        assert self.judge([1.0, 1.5], [6.0, 8.0]) is Status.MODEL_AGREES
        assert self.judge([0.0, 0.1], [20.0, 25.0]) is Status.MODEL_AGREES_SIZE
        assert self.judge([7.0, 9.0], [1.0, 2.0]) is Status.MODEL_DISAGREES
        assert checkers.order_skew(CLAIMS["P9"], emulator(), machine="m", operator="o").status is Status.NOT_EVALUATED


class TestOccupancy:
    def judge(self, occupancies):
        return checkers.occupancy(
            CLAIMS["P10"], emulator(resources=rows.resources(occupancies)), target="gfx90a"
        ).status

    def test_verdicts(self):
        assert self.judge({"a": (0.75, 0.625), "b": (1.0, 0.875)}) is Status.REPRODUCED
        assert self.judge({"a": (0.75, 0.25), "b": (1.0, 0.5)}) is Status.TREND
        assert self.judge({"a": (0.75, 0.625), "b": (1.0, 1.0), "c": (0.5, 0.5)}) is Status.INCONCLUSIVE
        assert self.judge({"a": (0.5, 0.5)}) is Status.CONTRADICTED
        assert checkers.occupancy(CLAIMS["P10"], emulator(), target="gfx90a").status is Status.NOT_EVALUATED

    def test_cost_by_the_model(self):
        part = 100 - CLAIMS["P10"].value("occupancy")
        table = pd.DataFrame(
            [
                {
                    "operator": "o",
                    "case": "c0",
                    "machine": "m",
                    "strategy": "fused",
                    "occupancy_percent": part,
                    "time_us": 80.0,
                }
            ]
        )
        bulk = rows.reduction([10.0], "o", "m")
        judge = lambda occupancy: (
            checkers.occupancy_cost(
                CLAIMS["P10"], emulator(model={"occupancy": occupancy, "reduction": bulk}), machine="m", operator="o"
            ).status
        )
        assert judge(table) is Status.MODEL_AGREES
        assert judge(table.assign(time_us=120.0)) is Status.MODEL_DISAGREES
        assert judge(table.assign(occupancy_percent=50.0)) is Status.NOT_EVALUATED


def test_no_checker_is_without_a_test():
    tested = {
        "faster",
        "model_reduction",
        "scale_out",
        "zero_copy",
        "operators",
        "link_traffic",
        "order_skew",
        "occupancy",
        "occupancy_cost",
    }
    constant = {"two_nodes", "no_experiment"}
    assert set(checkers.CHECKERS) == tested | constant
    for name in constant:
        assert checkers.CHECKERS[name](CLAIMS["P2"], emulator()).status is Status.NOT_EVALUATED

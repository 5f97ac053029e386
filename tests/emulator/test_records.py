"""Recorded work-groups do what interpreted ones do, whatever a kernel holds on Python's stack or in registers of inline assembly."""

import pytest

VALUES = {"expression": {0, 1, 2, 3}, "calls": {0, 1, 2, 3}, "bound": {1, 2, 3, 4}, "assembly": {0, 1, 2, 3}}


@pytest.mark.parametrize("how", VALUES)
def test_values_in_no_variable(interpreting, how: str) -> None:
    recorded, interpreted = (
        interpreting("runs", "tests.emulator.record_kernels:program", seeds=100, options={"record": record}, HOW=how)
        for record in (True, False)
    )
    assert [(r.results, r.digest) for r in recorded] == [(r.results, r.digest) for r in interpreted]
    assert {r.results[0] for r in recorded} == VALUES[how]

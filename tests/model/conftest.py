"""Fixtures of the model's tests."""

import pytest
from model_machines import machine_of

from experiments.model.machine import Machine


@pytest.fixture(params=["h200-x2", "mi210-x4", "mi210-2node"])
def machine(request: pytest.FixtureRequest) -> Machine:
    """One machine of each kind of fabric."""
    return machine_of(request.param)

"""Machines and small cases that the model's tests share."""

from experiments.model import machine as machines
from experiments.model import profile
from experiments.model.machine import Machine

CASES = {
    "gemv_all_reduce": {"case": "v", "m": 8192, "k": 2048, "batch": 1, "dtype": "float16"},
    "embedding_all_to_all": {
        "case": "e",
        "global_batch": 512,
        "tables": 16,
        "pooling": 16,
        "dim": 128,
        "dtype": "float32",
    },
    "gemm_all_to_all": {"case": "g", "m": 2048, "n": 4096, "k": 1024, "experts": 2, "dtype": "float16"},
}


def machine_of(name: str) -> Machine:
    """The machine of a profile."""
    return machines.from_profile(profile.load(name))

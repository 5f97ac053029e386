"""Broken kernels on purpose: verification must notice. Used by its tests; a fault runs in the emulator only, since on a GPU a
missing flag would hang the device.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import require

# Name: rule of emulator.mutants, applied everywhere in the device code.
FAULTS = {
    "drop_wait": "drop_wait",
    "drop_flag": "drop_signal",
    "drop_epoch": "constant_epoch",
    "drop_fence": "drop_fence",
    "drop_quiet": "drop_quiet",
}
SHARED_MODULES = ("kernels.shmem", "kernels.rdma", "kernels.handshake")


def broken(source: str, rule: str) -> str:
    """`source` with the rule applied at every place where it applies."""
    from emulator.mutants import transform

    rules = {rule: transform.OPERATORS[rule]}
    while (mutant := next(transform.mutate(source, rules), None)) is not None:
        source = mutant.source
    return source


@contextmanager
def injected(fault: str, device_modules: tuple[str, ...]) -> Iterator[None]:
    """Within the block, kernels are imported with the fault in them (this process must not have imported them yet)."""
    from emulator.mutants import loader

    require(fault in FAULTS, "fault", fault, ", ".join(FAULTS))
    originals = {name: loader.source_of(name) for name in (*SHARED_MODULES, *device_modules)}
    with loader.override({name: broken(source, FAULTS[fault]) for name, source in originals.items()}):
        yield

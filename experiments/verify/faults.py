"""Broken kernels on purpose: verification must notice. Used by its tests; a fault runs in the emulator only, since on a GPU a
missing flag would hang the device.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import require

# name: (module; "" for the operator's device code, rule of emulator.mutants, function; "" for all)
FAULTS = {
    "drop_wait": ("kernels.shmem", "drop_wait", "wait"),
    "drop_flag": ("kernels.shmem", "drop_signal", ""),
    "drop_epoch": ("", "constant_epoch", ""),
}


def broken(source: str, rule: str, function: str) -> str:
    """`source` with the rule applied at every place where it applies. Raises `ExperimentError` if there is none."""
    from emulator.mutants import transform

    rules = {rule: transform.OPERATORS[rule]}
    functions = frozenset({function}) if function else None
    changed = source
    while (mutant := next(transform.mutate(changed, rules, functions), None)) is not None:
        changed = mutant.source
    require(changed != source, "fault", rule, f"a rule that applies to {function or 'some kernel'}")
    return changed


@contextmanager
def injected(fault: str, device_modules: tuple[str, ...]) -> Iterator[None]:
    """Within the block, kernels are imported with the fault in them (this process must not have imported them yet)."""
    from emulator.mutants import loader

    require(fault in FAULTS, "fault", fault, ", ".join(FAULTS))
    module, rule, function = FAULTS[fault]
    modules = (module,) if module else device_modules
    with loader.override({name: broken(loader.source_of(name), rule, function) for name in modules}):
        yield

"""Instrumented kernels: the marks stand where they should, the code compiles, and the production source has none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.studies import trace

ROOT = Path(__file__).parents[2]
MODULES = ("gemv_device", "embedding_device", "gemm_device")


def events(function: ast.FunctionDef) -> list[str]:
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "mark"]
    return [trace.EVENTS[c.args[3].value] for c in calls]  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_is_marked(module: str) -> None:
    source = (ROOT / "kernels" / f"{module}.py").read_text()
    assert "globaltimer" not in source
    tree = ast.parse(trace.instrumented(source))
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel")]
    assert len(kernels) >= 2
    for kernel in kernels:
        found = events(kernel)
        assert found.count("start") == found.count("end") == 1
        assert {"computed", "stored"} <= set(found)
        if kernel.name != "compute_kernel":
            assert {"flag raised", "flag seen"} <= set(found)
    others = [n for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.endswith("_kernel")]
    assert not any(events(n) for n in others)


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton.runtime.driver as driver
driver.set_active(type("Driver", (), {"get_current_target": lambda self: GPUTarget("cuda", 90, 32)})())
from dataclasses import replace
from kernels import gemv_all_reduce as op
from experiments.studies import trace

class Rank:
    rank, world_size, device, state = 0, 2, torch.device("cpu"), {}
    bases = torch.zeros(2, dtype=torch.int64)
    def empty(self, shape, dtype, name=""): return torch.zeros(shape, dtype=dtype)
    def exchange(self, value): return [value, value]
    def max_resident(self, warps): return 4
    def launch(self, kernel, grid, args, *, num_warps=4, num_stages=1, waits=True):
        names = {torch.float32: "*fp32", torch.int64: "*i64", torch.bfloat16: "*bf16"}
        signature, constants = {}, {}
        for parameter in kernel.params:
            value = args[parameter.name]
            if parameter.is_constexpr:
                signature[parameter.name], constants[parameter.name] = "constexpr", value
            else:
                signature[parameter.name] = names[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        ptx = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32)).asm["ptx"]
        print(kernel.__name__, ptx.count("globaltimer"))

rank = trace.Tracing(Rank(), "kernels.gemv_device", 64)
p = op.Problem(64, 256, 1, torch.bfloat16, 2)
w, x, out = (torch.zeros(s, dtype=torch.bfloat16) for s in ((64, 256), (1, 256), (1, 64)))
config = op.default_config(p, rank)
op.fused(rank, p, w, x, out, config=config)
op.fused(rank, p, w, x, out, config=replace(config, algorithm="one_shot"))
"""


def test_instrumented_kernels_compile_and_read_the_timer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}
    assert set(counts) == {"two_phase_kernel", "one_shot_kernel"}
    assert min(counts.values()) >= 6

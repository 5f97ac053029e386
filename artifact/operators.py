"""`python -m artifact.operators --out FILE`: the registered PyTorch operators with their faces and signatures, as tidy rows."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from . import results
from .errors import ArtifactError, require

NAMESPACE = "fusedcc"
OPERATORS = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all")


def rows() -> pd.DataFrame:
    """One row an operator and face: face `out` writes into the caller's tensor, `owned` returns a fresh one."""
    import torch

    import kernels.ops  # noqa: F401 - importing it registers the operators

    found = []
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        operator = name.removesuffix("_out")
        if space == NAMESPACE and operator in OPERATORS:
            face = "out" if name.endswith("_out") else "owned"
            found.append(
                {
                    "operator": operator,
                    "torch_operator": f"torch.ops.{space}.{name}",
                    "face": face,
                    "signature": str(schema),
                }
            )
    require(bool(found), "operators in torch.ops." + NAMESPACE, 0, "1 or more")
    return pd.DataFrame(found).sort_values(["operator", "face"], ignore_index=True)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact.operators", description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    options = p.parse_args(arguments)
    try:
        found = rows()
        results.write(found, options.out, "operators")
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"operators: {len(found)} in torch.ops.{NAMESPACE}, {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Error bounds of the operators, from one stated formula.

A sum of n products accumulated in float32 in any order differs from the exact one by at most gamma(n) * sum |a b|, with
gamma(n) = n u / (1 - n u) and u = 2**-24 (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1);
the result is then rounded once to the output dtype, at most u_out * |y| (1 + gamma) plus half of the smallest subnormal.
Nothing is added for luck: a kernel that rounds a partial result on the way breaks the bound.
"""

import torch

_F32_UNIT = 2.0**-24
_UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-53}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def gamma(n: int) -> float:
    """Higham's gamma for n float32 roundings."""
    return n * _F32_UNIT / (1 - n * _F32_UNIT)


def sum_bound(exact: torch.Tensor, magnitude: torch.Tensor, n_terms: int, dtype: torch.dtype) -> torch.Tensor:
    """Largest allowed |y - exact| per element, float64.

    Args:
        exact: float64 result.
        magnitude: float64, same shape: the sum of the absolute values of the summed products.
        n_terms: how many float32 operations one element took (products and additions).
        dtype: output dtype.
    """
    g = gamma(n_terms)
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2
    return g * magnitude + _UNIT[dtype] * (exact.abs() + g * magnitude) + tiny

"""The physical limit of a case on the machine that measured it, from rates of the same run. No torch."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Rates:
    """What the microbenchmarks of this run reached.

    Attributes:
        read_gbs: streaming read, GB/s. gemm_tflops: library GEMM by dtype, TFLOP/s.
        store_gbs: stores into a peer, GB/s; 0 without a peer. flag_us: one-way flag latency; 0 without a peer.
    """

    read_gbs: float
    gemm_tflops: dict[str, float]
    store_gbs: float = 0.0
    flag_us: float = 0.0

    def limit_us(self, bytes_read: int, bytes_sent: int, flops: int, dtype: str, matrix: bool) -> float:
        """max(bytes read / read rate, FLOPs / GEMM rate, bytes sent / peer-store rate) + one flag where something is sent.

        `matrix`: whether the FLOPs are those of a matrix product (others are never what binds and are left out).
        """
        times = [bytes_read / (self.read_gbs * 1e3)]
        if matrix:
            times.append(flops / (self.gemm_tflops[dtype] * 1e6))
        if bytes_sent:
            times.append(bytes_sent / (self.store_gbs * 1e3))
        return max(times) + (self.flag_us if bytes_sent else 0.0)

    def as_dict(self) -> dict[str, Any]:
        """For the provenance."""
        return asdict(self)


def from_samples(samples: list[tuple[Any, list[float]]]) -> Rates:
    """Rates from (probe, microseconds a call, one value a sample): the best probe of a kind, by its median."""
    times = [(probe, median(values)) for probe, values in samples if values]

    def best(arm: str, amount: str, dtype: str = "float32") -> float:
        return max((getattr(p, amount) / t for p, t in times if p.arm == arm and p.dtype == dtype), default=0.0)

    kinds = sorted({p.dtype for p, _ in times if p.arm == "gemm"})
    return Rates(
        read_gbs=best("read", "bytes_read") / 1e3,
        gemm_tflops={dtype: best("gemm", "flops", dtype) / 1e6 for dtype in kinds},
        store_gbs=best("peer_store", "bytes_sent") / 1e3,
        flag_us=min((t / p.per for p, t in times if p.arm == "flag"), default=0.0),
    )

"""A profile in SI units, ready to simulate: bytes/s, seconds, FLOP/s. Sensitivity and fitting change this, never the profile."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .errors import require
from .profile import Kernel, Profile

US = 1e-6
GB = 1e9
TERA = 1e12


@dataclass(frozen=True)
class KernelUse:
    """How one operator's kernel uses a GPU: see `profile.Kernel`; `bytes_in_flight` is of one wave."""

    waves_per_wg: int
    wgs_per_cu: int
    fused_wgs_per_cu: int
    bytes_in_flight: float
    wg_overhead: float
    memory_efficiency: float
    math_efficiency: float


@dataclass(frozen=True)
class Machine:
    """Everything the simulator needs to know of a machine. Times in s, rates in bytes/s or FLOP/s.

    Attributes:
        gpu: the GPU's name, by which tuned configurations are found.
        memory: streaming read rate of one GPU. sector: bytes that memory serves together.
        link: rate of one link (pair, port or NIC), one direction.
        flag: one-way flag latency.
        store_rate: of one work-group into a peer.
        put_cost: NIC time of one put beyond its bytes.
        sync_cost: time that a work-group spends on one signal or wait beyond latencies (fitted; 0 in profiles).
    """

    name: str
    gpu: str
    gpus: int
    compute_units: int
    wave_slots: int
    memory: float
    sector: float
    memory_latency: float
    matrix: float
    vector: float
    launch: float
    fabric: str
    link: float
    flag: float
    store_rate: float
    put_cost: float
    alpha_all_reduce: float
    alpha_all_to_all: float
    efficiency_all_reduce: float
    efficiency_all_to_all: float
    kernels: Mapping[str, KernelUse]
    sync_cost: float = 0.0

    @property
    def transport(self) -> str:
        """How fused kernels send here: "rdma" puts through a NIC, else "peer" stores."""
        return "rdma" if self.fabric == "nic" else "peer"

    @property
    def capacity(self) -> float:
        """Bytes/s that one GPU can send to all peers together."""
        return self.link * (self.gpus - 1) if self.fabric == "pairwise" else self.link

    def scaled(self, link: float = 1.0, memory: float = 1.0, launch: float = 1.0) -> "Machine":
        """The machine with links, memory, and launches (kernels' and the collectives' alpha) scaled: the sensitivity band."""
        for name, factor in (("link", link), ("memory", memory), ("launch", launch)):
            require(factor > 0, f"{name} scale", factor, "more than 0")
        return replace(
            self,
            link=self.link * link,
            store_rate=self.store_rate * link,
            memory=self.memory * memory,
            launch=self.launch * launch,
            alpha_all_reduce=self.alpha_all_reduce * launch,
            alpha_all_to_all=self.alpha_all_to_all * launch,
        )

    def with_kernel(self, operator: str, **changes: float) -> "Machine":
        """The machine with one operator's `KernelUse` changed."""
        return replace(self, kernels={**self.kernels, operator: replace(self.kernels[operator], **changes)})

    def grid(self, operator: str, fused: bool) -> int:
        """Physical work-groups of a persistent launch: what the CUs hold at this operator's register use."""
        use = self.kernels[operator]
        return self.compute_units * (use.fused_wgs_per_cu if fused else use.wgs_per_cu)

    def math_rate(self, operator: str) -> float:
        """FLOP/s that the operator's inner loop reaches: matrix cores for the GEMM, vector units else."""
        peak = self.matrix if operator == "gemm_all_to_all" else self.vector
        return peak * self.kernels[operator].math_efficiency

    def memory_rate(self, operator: str) -> float:
        """Bytes/s that the operator's access pattern reaches with enough work-groups."""
        return self.memory * self.kernels[operator].memory_efficiency

    def write_cost(self, operator: str) -> float:
        """What writing a byte takes of the memory, in bytes read by this operator's pattern: writes stream."""
        return self.kernels[operator].memory_efficiency

    def wg_memory_rate(self, operator: str, waves: int, asked: float) -> float:
        """Bytes/s that one work-group of `waves` waves reaches alone: Little's law, outstanding bytes over latency.

        It keeps `asked` bytes outstanding by its configuration, but no more than its waves can.
        """
        return min(asked, self.kernels[operator].bytes_in_flight * waves) / self.memory_latency

    def collective(self, kind: str, bytes_per_rank: float) -> float:
        """Seconds of the vendor's collective, launch included: alpha + bytes through the GPU's links / reached rate.

        An all-to-all sends (N-1)/N of the buffer; an all-reduce 2 (N-1)/N (reduce-scatter, all-gather).
        """
        if self.gpus == 1:
            return 0.0
        alpha, efficiency, passes = {
            "all_reduce": (self.alpha_all_reduce, self.efficiency_all_reduce, 2),
            "all_to_all": (self.alpha_all_to_all, self.efficiency_all_to_all, 1),
        }[kind]
        return alpha + passes * (self.gpus - 1) / self.gpus * bytes_per_rank / (efficiency * self.capacity)


def _use(kernel: Kernel) -> KernelUse:
    waves = int(kernel.waves_per_wg.value)
    return KernelUse(
        waves_per_wg=waves,
        wgs_per_cu=int(kernel.wgs_per_cu.value),
        fused_wgs_per_cu=int(kernel.fused_wgs_per_cu.value),
        bytes_in_flight=kernel.bytes_in_flight.value,
        wg_overhead=kernel.wg_overhead.value * US,
        memory_efficiency=kernel.memory_efficiency.value,
        math_efficiency=kernel.math_efficiency.value,
    )


def from_profile(profile: Profile) -> Machine:
    """Convert units once. Raises `ModelError` when a kernel wants more waves than the CU has."""
    gpu, fabric, library = profile.gpu, profile.fabric, profile.library
    slots = int(gpu.wave_slots.value)
    for operator, kernel in profile.kernels.items():
        for field in ("wgs_per_cu", "fused_wgs_per_cu"):
            waves = int(getattr(kernel, field).value * kernel.waves_per_wg.value)
            require(waves <= slots, f"{profile.name}.yaml: {operator}.{field}", waves, f"at most {slots} waves a CU")
    return Machine(
        name=profile.name,
        gpu=gpu.name,
        gpus=int(profile.gpus.value),
        compute_units=int(gpu.compute_units.value),
        wave_slots=slots,
        memory=gpu.memory_read.value * GB,
        sector=gpu.sector.value,
        memory_latency=gpu.memory_latency.value * US,
        matrix=gpu.matrix_peak.value * TERA,
        vector=gpu.vector_peak.value * TERA,
        launch=gpu.launch.value * US,
        fabric=fabric.kind,
        link=fabric.link.value * GB,
        flag=fabric.flag_latency.value * US,
        store_rate=fabric.store_rate.value * GB,
        put_cost=fabric.put_cost.value * US,
        alpha_all_reduce=library.alpha_all_reduce.value * US,
        alpha_all_to_all=library.alpha_all_to_all.value * US,
        efficiency_all_reduce=library.efficiency_all_reduce.value,
        efficiency_all_to_all=library.efficiency_all_to_all.value,
        kernels={name: _use(kernel) for name, kernel in profile.kernels.items()},
    )

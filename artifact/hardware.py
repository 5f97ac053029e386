"""What GPUs this machine has and which backend that allows. Quick: no torch unless a driver answers."""

import functools
import subprocess
from typing import Any

from .errors import ArtifactError

PEERS = 2
NEEDS = "needs 2 GPUs with peer access"


@functools.cache
def gpu_names() -> tuple[str, ...]:
    """Models of the GPUs that a driver reports, NVIDIA first, else AMD; empty without one."""
    queries = (
        (["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 0),
        (["rocm-smi", "--showproductname", "--csv"], 1),
    )
    for command, skip in queries:
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        names = tuple(line.strip() for line in answer.splitlines()[skip:] if line.strip())
        if names:
            return names
    return ()


@functools.cache
def peer_access() -> bool:
    """Whether the first two GPUs can map each other's memory (asks torch)."""
    if len(gpu_names()) < PEERS:
        return False
    try:
        import torch

        return (
            torch.cuda.is_available() and torch.cuda.device_count() >= PEERS and torch.cuda.can_device_access_peer(0, 1)
        )
    except (ImportError, RuntimeError):
        return False


def resolve(backend: str, cluster: bool = False) -> str:
    """The backend of a run: `emulator` or `gpu`. Raises `ArtifactError` when gpu is asked for and cannot be.

    On a cluster this machine's GPUs say nothing about those of the jobs, so the backend must be named.
    """
    if cluster:
        if backend == "auto":
            raise ArtifactError("config: backend is 'auto'; allowed with cluster: 'emulator' or 'gpu'")
        return backend
    if backend == "gpu" and not peer_access():
        raise ArtifactError(
            f"backend is 'gpu'; {NEEDS}, found {len(gpu_names())} GPUs: use backend=emulator or backend=auto"
        )
    if backend == "auto":
        return "gpu" if peer_access() else "emulator"
    return backend


def describe() -> dict[str, Any]:
    """For hardware.json: GPUs and whether they are peers."""
    return {"gpus": list(gpu_names()), "peer_access": peer_access()}

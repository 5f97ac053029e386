"""Clocks, temperature, throttling and other processes of a GPU: by nvidia-ml-py, else by nvidia-smi, else unknown."""

import os
import subprocess
from typing import Any

from .schedule import Health

_QUERY = "clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active"


def read(index: int, own_processes: int = 1) -> Health:
    """The state of GPU `index` (as this process numbers them) now."""
    physical = _physical(index)
    found = _by_nvml(physical, own_processes)
    return found if found is not None else _by_smi(physical)


def _physical(index: int) -> str:
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
    return visible[index] if index < len(visible) else str(index)


def _by_nvml(index: str, own_processes: int) -> Health | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(index))
            if index.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(index)
        )
    except (pynvml.NVMLError, ValueError):
        return None

    def ask(function: str, *args: Any) -> Any:
        try:
            return getattr(pynvml, function)(handle, *args)
        except (pynvml.NVMLError, AttributeError):
            return None

    power, processes = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetComputeRunningProcesses")
    return Health(
        sm_mhz=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        memory_mhz=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
        temperature_c=ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
        power_w=None if power is None else power / 1000,
        throttle=ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
        others=None if processes is None else max(0, len(processes) - own_processes),
    )


def _by_smi(index: str) -> Health:
    command = ["nvidia-smi", "-i", index, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        sm, memory, temperature, power, throttle = (cell.strip() for cell in answer.strip().split(","))
        return Health(int(sm), int(memory), int(temperature), float(power), int(throttle, 16))
    except (OSError, subprocess.SubprocessError, ValueError):
        return Health()

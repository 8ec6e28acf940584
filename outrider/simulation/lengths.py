"""How long prompts and responses are: distributions of numbers of tokens, each read by one uniform number."""

from dataclasses import dataclass
from math import exp
from statistics import NormalDist

from outrider.contracts.errors import ParameterError

_NORMAL = NormalDist()
_LEAST_UNIFORM = 1e-12


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always so many tokens.

    Raises:
        ParameterError: less than one.
    """

    tokens: int

    def __post_init__(self) -> None:
        """Refuse nothing at all."""
        _check_range("tokens", 1, self.tokens)

    @property
    def most_tokens(self) -> int:
        """The longest there is."""
        return self.tokens

    def at(self, uniform: float) -> int:  # noqa: ARG002 (one signature for all)
        """The quantile of a number in [0, 1)."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """``least_tokens``..``most_tokens``, each as likely.

    Raises:
        ParameterError: the range is empty or begins below one.
    """

    least_tokens: int
    most_tokens: int

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        _check_range("least_tokens", 1, self.least_tokens)
        _check_range("most_tokens", self.least_tokens, self.most_tokens)

    def at(self, uniform: float) -> int:
        """The quantile of a number in [0, 1)."""
        return self.least_tokens + int(uniform * (self.most_tokens - self.least_tokens + 1))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """What people write and read: many short ones, few long ones; cut to ``least_tokens``..``most_tokens``.

    Attributes:
        median_tokens: half are shorter.
        sigma: standard deviation of the logarithm.

    Raises:
        ParameterError: a field is out of range.
    """

    median_tokens: float
    sigma: float
    least_tokens: int = 1
    most_tokens: int = 4096

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        _check_range("least_tokens", 1, self.least_tokens)
        _check_range("most_tokens", self.least_tokens, self.most_tokens)
        if not self.median_tokens > 0.0:
            raise ParameterError("median_tokens", "a number above 0", self.median_tokens)
        if not self.sigma >= 0.0:
            raise ParameterError("sigma", "a number of at least 0", self.sigma)

    def at(self, uniform: float) -> int:
        """The quantile of a number in [0, 1)."""
        deviations = _NORMAL.inv_cdf(max(uniform, _LEAST_UNIFORM))
        tokens = round(self.median_tokens * exp(self.sigma * deviations))
        return min(max(tokens, self.least_tokens), self.most_tokens)


Lengths = Fixed | Uniform | Lognormal


def _check_range(field: str, least: int, found: int) -> None:
    if found < least:
        raise ParameterError(field, f"an integer of at least {least}", found)

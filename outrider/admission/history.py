"""How long responses of a class were: what is expected of one whose length nobody knows. Running means.

Short responses end first, so a young mean is too low; it is mixed with a prior for the first few.
"""

from dataclasses import dataclass
from math import ceil, inf

_WEIGHT = 0.02  # of the newest response
_PRIOR_TOKENS = 128.0
_PRIOR_WEIGHT = 4  # responses


@dataclass(frozen=True, slots=True)
class ResponseMean:
    """Of responses of one class that ended by themselves."""

    output_tokens: float = _PRIOR_TOKENS
    squares: float = _PRIOR_TOKENS**2 * 4 / 3  # of output tokens; begins as if they were even between 0 and twice that
    duration_s: float | None = None  # from the first begin to the end
    responses: int = 0

    def after(self, output_tokens: int, duration_s: float) -> "ResponseMean":
        """With one response more."""
        weight = max(_WEIGHT, 1.0 / (self.responses + _PRIOR_WEIGHT))
        before_s = duration_s if self.duration_s is None else self.duration_s
        return ResponseMean(
            self.output_tokens + weight * (output_tokens - self.output_tokens),
            self.squares + weight * (output_tokens**2 - self.squares),
            before_s + weight * (duration_s - before_s),
            self.responses + 1,
        )

    def tokens(self, most: float = inf) -> float:
        """Expected of the next one, which may not have more than ``most``."""
        return min(self.output_tokens, most)

    def takes_s(self, tokens_per_s: float) -> float:
        """How long the next one is expected to take; nothing better is known at first than its promise."""
        if self.duration_s is not None:
            return max(self.duration_s, 1e-3)
        return self.output_tokens / tokens_per_s if tokens_per_s else self.output_tokens / _PRIOR_TOKENS * 10.0

    def kv(self, prompt_tokens: int, most: float, block_tokens: int) -> tuple[float, float]:
        """Mean and variance of the positions one holds at a random moment, half a block for rounding up included."""
        expected, variance = self.tokens(most), max(0.0, self.squares - self.output_tokens**2)
        if expected < self.output_tokens:
            variance *= (expected / self.output_tokens) ** 2
        # The response is at any point of its output: E[(L U)^2] - E[L U]^2 with U even in 0..1.
        spread = (variance + expected**2) / 3.0 - expected**2 / 4.0
        return prompt_tokens + ceil(expected / 2.0) + block_tokens / 2.0, spread


class Histories:
    def __init__(self) -> None:
        self._means: dict[str, ResponseMean] = {}
        self._all = ResponseMean()

    def ended(self, slo_class: str, output_tokens: int, duration_s: float) -> None:
        """A response ended by itself."""
        self._means[slo_class] = self._means.get(slo_class, ResponseMean()).after(output_tokens, duration_s)
        self._all = self._all.after(output_tokens, duration_s)

    def of(self, slo_class: str) -> ResponseMean:
        """What is expected of a class: of lengths what all had, as long as it has had none of its own."""
        own = self._means.get(slo_class)
        if own is not None:
            return own
        return ResponseMean(self._all.output_tokens, self._all.squares)

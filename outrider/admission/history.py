"""Estimate output length, duration and KV of the next response from running means of its class.

Short responses end first, so the mean of the first few is too low: it is mixed with a prior.
"""

from dataclasses import dataclass
from math import ceil, inf

_WEIGHT = 0.02  # of the newest response
_PRIOR_TOKENS = 128.0
_PRIOR_WEIGHT = 4  # responses that the prior counts as


@dataclass(frozen=True, slots=True)
class ResponseMean:
    """Running means over responses of one class that ended by themselves."""

    output_tokens: float = _PRIOR_TOKENS
    # mean of squared output tokens; the prior is that of a uniform law on 0 to twice the mean
    squares: float = _PRIOR_TOKENS**2 * 4 / 3
    duration_s: float | None = None  # from begin to end, without stalls
    responses: int = 0

    def after(self, output_tokens: int, duration_s: float) -> "ResponseMean":
        # A plain mean at first, then one with exponential forgetting.
        weight = max(_WEIGHT, 1.0 / (self.responses + _PRIOR_WEIGHT))
        before_s = duration_s if self.duration_s is None else self.duration_s
        return ResponseMean(
            self.output_tokens + weight * (output_tokens - self.output_tokens),
            self.squares + weight * (output_tokens**2 - self.squares),
            before_s + weight * (duration_s - before_s),
            self.responses + 1,
        )

    def tokens(self, most: float = inf) -> float:
        """Return the expected output of the next response, which has at most ``most`` tokens."""
        return min(self.output_tokens, most)

    def mean_duration_s(self, tokens_per_s: float) -> float:
        """Return the expected duration of the next response; from the promised speed while none has ended."""
        if self.duration_s is not None:
            return max(self.duration_s, 1e-3)
        return self.output_tokens / tokens_per_s if tokens_per_s else self.output_tokens / _PRIOR_TOKENS * 10.0

    def kv(self, prompt_tokens: int, most: float, block_tokens: int) -> tuple[float, float]:
        """Return mean and variance of the positions held at a random moment; half a block is added for rounding up."""
        expected, variance = self.tokens(most), max(0.0, self.squares - self.output_tokens**2)
        if expected < self.output_tokens:
            variance *= (expected / self.output_tokens) ** 2  # a shorter bound scales the spread alike
        # At a random moment a response of length L is at L U with U uniform in 0..1: variance E[L^2] / 3 - E[L]^2 / 4.
        spread = (variance + expected**2) / 3.0 - expected**2 / 4.0
        return prompt_tokens + ceil(expected / 2.0) + block_tokens / 2.0, spread


class Histories:
    def __init__(self) -> None:
        self._means: dict[str, ResponseMean] = {}
        self._all = ResponseMean()

    def ended(self, slo_class: str, output_tokens: int, duration_s: float) -> None:
        """Count a response that ended by itself."""
        self._means[slo_class] = self._means.get(slo_class, ResponseMean()).after(output_tokens, duration_s)
        self._all = self._all.after(output_tokens, duration_s)

    def of(self, slo_class: str) -> ResponseMean:
        """Return the means of a class; before its first response, the lengths of all classes."""
        own = self._means.get(slo_class)
        if own is not None:
            return own
        return ResponseMean(self._all.output_tokens, self._all.squares)

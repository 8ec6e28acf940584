"""Count what happens to one kind of traffic while a fleet is simulated."""

from lab.simulation.fleet.results import TimeHistogram, TrafficResults
from lab.simulation.fleet.scenario import Traffic


class TrafficTally:
    __slots__ = (
        "_traffic",
        "asked",
        "first_token",
        "hit_tokens",
        "kept",
        "kept_tokens",
        "late",
        "prompt_tokens",
        "refused",
        "tokens",
    )

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.asked = self.kept = self.late = self.refused = 0
        self.tokens = self.kept_tokens = self.prompt_tokens = self.hit_tokens = 0
        self.first_token = TimeHistogram()

    def results(self, measured_s: float) -> TrafficResults:
        slo, each_s = self._traffic.slo, max(measured_s, 1e-9)
        return TrafficResults(
            name=self._traffic.name,
            slo=slo.name,
            tokens_per_s=slo.tokens_per_s,
            asked=self.asked,
            kept=self.kept,
            late=self.late,
            refused=self.refused,
            unfinished=self.asked - self.kept - self.late - self.refused,
            first_token_p50_s=self.first_token.quantile_s(0.5),
            first_token_p99_s=self.first_token.quantile_s(0.99),
            goodput_tokens_per_s=self.tokens / each_s,
            kept_goodput_tokens_per_s=self.kept_tokens / each_s,
            prompt_tokens=self.prompt_tokens,
            hit_tokens=self.hit_tokens,
        )

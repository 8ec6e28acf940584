"""Price responses: what each needs of the verifier, and when what the active ones hold becomes free."""

from collections.abc import Iterable
from math import ceil

from outrider.admission.decisions import ScarceResource, Shortage
from outrider.admission.history import Histories
from outrider.admission.response_load import response_load, useful_share
from outrider.admission.responses import TrackedResponse
from outrider.admission.room import Bounds, Needs
from outrider.admission.share_correction import ShareCorrections

_REPRICED_S = 1.0  # shortest time between two prices of one response
_LONGEST_RETRY_S = 120
_RETRY_UNKNOWN_S = 5.0  # where nothing active will free what is missing


class Prices:
    """Learns from responses that end, by class. Mutable."""

    def __init__(self) -> None:
        self._histories, self._corrections = Histories(), ShareCorrections()

    def needs(self, one: TrackedResponse, now_s: float, bounds: Bounds) -> Needs:
        """Return what a response needs, priced anew once a second."""
        if one.needs is not None and now_s - one.priced_at_s < _REPRICED_S:
            return one.needs
        asked, slo, history, verifier = one.asked, one.slo, self._histories.of(one.slo.name), bounds.verifier
        load = response_load(slo.tokens_per_s, asked.prompt_tokens, history.tokens(asked.most_tokens), verifier)
        kv = history.kv(asked.prompt_tokens, asked.most_tokens, verifier.block_tokens)
        # In vain: its load exceeds the capacity left by passes as short as its own speed requires.
        share = useful_share(slo.tokens_per_s, verifier) * self._corrections.of(slo.name)
        one.needs = Needs(load, *kv, share=share, in_vain=load > bounds.load(share))
        one.priced_at_s = now_s
        return one.needs

    def ended(self, one: TrackedResponse, output_tokens: int, now_s: float, *, kept: bool, pressure: float) -> None:
        """Learn from a response that ended by itself; ``pressure``: the load of all promises over its limit."""
        self._histories.ended(one.slo.name, output_tokens, now_s - one.begun_at_s)
        # That a promise in vain was late says nothing about prices.
        if one.promised and (kept or one.needs is None or not one.needs.in_vain):
            self._corrections.ended(one.slo.name, kept=kept, pressure=pressure)

    def refused(self, one: TrackedResponse) -> None:
        self._corrections.refused(one.slo.name)

    def retry_after_s(
        self,
        shortage: Shortage,
        before: Iterable[TrackedResponse],
        active: Iterable[TrackedResponse],
        now_s: float,
        bounds: Bounds,
    ) -> int:
        """Return the seconds until a response should fit behind those before it: what is missing over its release."""

        def amount(other: TrackedResponse) -> float:
            needs = self.needs(other, now_s, bounds)
            if shortage.resource is ScarceResource.LOAD:
                return needs.load
            return needs.kv_tokens if shortage.resource is ScarceResource.MEMORY else 1.0

        missing = sum(map(amount, before))
        if shortage.resource is not ScarceResource.QUEUE:
            missing += shortage.in_use - shortage.allowed
        # An active response frees what it holds once in its class's mean duration.
        freed_per_s = sum(
            amount(other) / self._histories.of(other.slo.name).mean_duration_s(other.slo.tokens_per_s)
            for other in active
        )
        seconds = missing / freed_per_s if freed_per_s > 0.0 else _RETRY_UNKNOWN_S
        return max(1, ceil(min(seconds, _LONGEST_RETRY_S)))

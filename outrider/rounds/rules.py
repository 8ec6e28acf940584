"""Settings of rounds that all responses of a verifier share."""

from dataclasses import dataclass, field

from outrider.lookup.text import LookupHistory
from outrider.rounds.choice import Speculation
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import FIRST_TOKEN_S, DeadlineRule
from outrider.selection.situation import ChoiceReason, Estimate, RoundChoice, SelectionPolicy

LINK_PATIENCE = 3.0  # times what a link is expected to take, added to a drafter's deadline
MAX_VERIFIER_LOSSES = 5  # in a row, without a committed round between them


@dataclass(frozen=True, slots=True)
class RunGrant:
    """Rounds that a verifier may make by itself before it is asked anew."""

    with_drafter: int = 2  # while one may be of use
    without_drafter: int = 32  # likewise the most of any grant
    undrafted_s: float = 1.0  # worth of rounds where the verifier's speculation tuner has nothing drafted

    def rounds(self, choice: RoundChoice | None, *, may_draft: bool) -> int:
        """That may follow, where the last choice was to draft nothing."""
        if not may_draft:
            return self.without_drafter
        if choice is None or choice.reason is not ChoiceReason.TUNED:
            return self.with_drafter
        rounds = self.undrafted_s / max(choice.chosen.round_s, 1e-6)
        return max(self.with_drafter, min(int(rounds), self.without_drafter))

    def beside(self, estimate: Estimate) -> int:
        """That may follow while this is drafted: until it should be here, and one more."""
        rounds = estimate.exchange_s / max(estimate.alone_s, 1e-6)
        return max(self.with_drafter, min(int(rounds) + 1, self.without_drafter))


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What the rounds of all responses of a verifier go by.

    Attributes:
        spikes: shared, and told of every batch.
        correction_deadline_s: how long a token that is a device's to draw waits for a device.
        first_token_s: from a request to its first token, where its response is promised a speed.
        experience: what was looked up, and how often it came true; shared.
    """

    speculation: Speculation
    policy: SelectionPolicy
    deadline_rule: DeadlineRule
    spikes: SpikeDetector
    correction_deadline_s: float
    grant: RunGrant = field(default_factory=RunGrant)
    first_token_s: float = FIRST_TOKEN_S
    experience: LookupHistory = field(default_factory=LookupHistory)

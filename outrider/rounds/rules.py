"""Settings shared by the rounds of all responses of a verifier, and the lengths of autonomous runs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.lookup.text import LookupHistory
from outrider.rounds.choice import Speculation
from outrider.rounds.promise_tracker import kv_is_never_short
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import FIRST_TOKEN_S, DeadlineRule
from outrider.selection.situation import ChoiceReason, Estimate, RoundChoice, SelectionPolicy

LINK_PATIENCE = 3.0  # expected durations of a round that an exchange may take beyond the drafter's usual deadline
MUST_USE_DRAFT_DEADLINE_S = 120.0  # for a block that has to be used (ratio rules), while the drafter answers probes
DRAFTER_OPEN_DEADLINE_S = 30.0  # for a drafter to open a generation, and for a pending correction
MAX_VERIFIER_LOSSES = 5  # in a row, without a committed round between them


@dataclass(frozen=True, slots=True)
class RunGrant:
    """Length of the autonomous runs that a verifier is granted, in rounds."""

    with_drafter: int = 2  # while a drafter may be of use
    without_drafter: int = 32  # without one; also the longest of all grants
    undrafted_s: float = 1.0  # seconds of rounds where the speculation tuner has no device draft

    def rounds(self, choice: RoundChoice | None, *, may_draft: bool) -> int:
        """Return the length of a run after a choice without a draft."""
        if not may_draft:
            return self.without_drafter
        if choice is None or choice.reason is not ChoiceReason.TUNED:
            return self.with_drafter
        rounds = self.undrafted_s / max(choice.chosen.round_s, 1e-6)
        return max(self.with_drafter, min(int(rounds), self.without_drafter))

    def beside(self, estimate: Estimate) -> int:
        """Return the length of a run beside a draft: until the draft should arrive, and one round more."""
        rounds = estimate.exchange_s / max(estimate.without_draft_s, 1e-6)
        return max(self.with_drafter, min(int(rounds) + 1, self.without_drafter))


@dataclass(frozen=True, slots=True)
class RoundRules:
    """Settings shared by the rounds of all responses of a verifier."""

    speculation: Speculation  # limits of all choices
    policy: SelectionPolicy  # that chooses plans
    deadline_rule: DeadlineRule  # how a block's deadline follows from its response's promise
    spikes: SpikeDetector  # finds the cause of late rounds; it gets the duration of every batch
    correction_deadline_s: float  # longest wait of a pending correction for a device
    grant: RunGrant = field(default_factory=RunGrant)  # lengths of autonomous runs
    first_token_s: float = FIRST_TOKEN_S  # allowed from a request to its first token, where a speed is promised
    # earlier texts, and how often continuations of matches came true
    experience: LookupHistory = field(default_factory=LookupHistory)
    # whether the verifier has too few KV blocks for all promises: then responses may be further ahead of theirs
    kv_is_short: Callable[[], bool] = kv_is_never_short

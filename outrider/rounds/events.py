"""Events and effects of the round state machine (``outrider.rounds.machine``), as plain data."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import Draft, DraftPlan, NeedsRow
from outrider.contracts.errors import OutriderError
from outrider.contracts.exchanged import CorrectionSource
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationChunk
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, PromptLookupGrant, Resolution, Undecided
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.timing import RoundTiming
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.selection.situation import DrafterView, VerifierView


@dataclass(frozen=True, slots=True)
class LeasedDrafter:
    model: str  # its draft model
    acceptance: AcceptanceBook  # statistics of all drafters of that model with this target
    view: DrafterView | None  # what the choice of a plan needs of it; None until its KV holds the prefix
    trusted: bool = False  # whether the output may depend on what it draws (``drafters[].trust``).


@dataclass(frozen=True, slots=True)
class Exchange:
    """A drafter's answer, with the seconds and bits that it took."""

    answer: Draft | NeedsRow | Resolution
    draft_s: float
    link_s: float
    up_bits: int
    down_bits: int
    model: str  # the draft model, by name


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A block's outcome, with its seconds in the queue and in passes, summed over all its passes."""

    outcome: Outcome
    queue_s: float
    verify_s: float
    draft_tokens: int | None = None  # number verified, where the batcher trimmed the draft; None: all of them


@dataclass(frozen=True, slots=True)
class RoundInput:
    """Start of a round: nothing is under way. Carries what the choice of its plan needs."""

    drafter: LeasedDrafter | None  # leased at present; None if there is none
    verifier: VerifierView  # its load at present
    mode: SpeculationMode = DRAFT  # speculation mode of this generation


@dataclass(frozen=True, slots=True)
class DrafterAnswered:
    """Answer to ``AskDrafter``, ``OrderAhead`` or ``AskAgain``."""

    round: int  # number of the round that was ordered
    exchange: Exchange | None  # None if the drafter was lost or lacks the prefix
    # there is no answer, possibly because of what the drafter drew; a ratio rule is then not exact
    censored: bool = False


@dataclass(frozen=True, slots=True)
class VerifierAnswered:
    """Answer to ``Verify``, ``Follow`` or ``Resolve``."""

    round: int  # number of the round that was verified
    result: VerifyResult | None  # None if the verifier was lost
    # present state for a new choice: where ``Follow`` asks for it, and after blocks with a draft
    round_input: RoundInput | None = None
    goes_on: bool = True  # whether an autonomous run's grant may be renewed: false if the client reads too slowly


Event = RoundInput | DrafterAnswered | VerifierAnswered


class Incident(StrEnum):
    """Failures that are counted in metrics."""

    CANDIDATES_REFUSED = "candidates_refused"  # no candidate token passed the device's test
    CORRECTION_GIVEN_UP = "correction_given_up"
    DRAFT_GIVEN_UP = "draft_given_up"  # lost, though a ratio rule is exact only if every draft is used
    ROUND_LOST = "round_lost"  # the verifier lost the generation


@dataclass(frozen=True, slots=True)
class Report:
    """Count and log an incident."""

    incident: Incident
    fields: dict[str, Any] = field(default_factory=dict)  # for the log


@dataclass(frozen=True, slots=True)
class Measured:
    """Record the timing of a committed round."""

    timing: RoundTiming


@dataclass(frozen=True, slots=True)
class Send:
    """Send a chunk of committed tokens to the client."""

    chunk: GenerationChunk


@dataclass(frozen=True, slots=True)
class Extend:
    """Renew the grant of the verifier's autonomous run: its last round, and its own prompt lookup."""

    until_round: int
    lookup: PromptLookupGrant | None


@dataclass(frozen=True, slots=True)
class Fail:
    error: OutriderError


@dataclass(frozen=True, slots=True)
class AwaitDrafter:
    """Wait until a drafter is ready, at most until ``until_s``; answered by ``RoundInput``."""

    until_s: float


@dataclass(frozen=True, slots=True)
class AwaitVerifier:
    """Wait until the verifier answers again; answered by ``RoundInput``."""


@dataclass(frozen=True, slots=True)
class AskDrafter:
    """Order a block of a drafter and wait for it; answered by ``DrafterAnswered``."""

    round: int
    plan: DraftPlan
    # source of a pending correction that the device is to draw; None if there is none
    correction: CorrectionSource | None
    allowed_s: float  # that the exchange may take beyond the usual deadline
    must_use: bool  # the draft has to be used, so it is awaited as long as the drafter lives (ratio rules)
    expected_s: float  # estimated duration of the exchange
    price: DraftPrice | None = None  # of a draft token, for a device whose stop rule uses one
    due_at_s: float = inf  # deadline of the block's commit; infinity without a promised speed


@dataclass(frozen=True, slots=True)
class OrderAhead:
    """Order a block of a drafter beside an autonomous run, without waiting.

    ``DrafterAnswered`` follows when the draft arrives, if a round is with the verifier then; else after ``AwaitDraft``.
    """

    asked: AskDrafter


@dataclass(frozen=True, slots=True)
class AwaitDraft:
    """Wait for a draft that was ordered ahead; answered by ``DrafterAnswered``."""

    round: int


@dataclass(frozen=True, slots=True)
class Join:
    """Give the verifier a late draft's block, which replaces the autonomous run at the next step.

    ``VerifierAnswered`` is first about rounds of the run that are under way, then about the block.
    """

    block: Block
    cost: VerifyCost
    terms: VerifyTerms


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask the drafter for its hidden states at an undecided round's mismatches; answered by ``DrafterAnswered``."""

    asked: Undecided
    allowed_s: float  # as in ``AskDrafter``


@dataclass(frozen=True, slots=True)
class Verify:
    """Have a block verified; answered by ``VerifierAnswered``. ``opening``: None if the verifier has the response."""

    block: Block
    opening: OpenGeneration | None
    cost: VerifyCost
    terms: VerifyTerms


@dataclass(frozen=True, slots=True)
class Follow:
    """Wait for the autonomous run's next round; answered by ``VerifierAnswered``."""

    round: int
    terms: VerifyTerms
    asks: bool  # the answer shall have a ``RoundInput``: a choice is due behind this round


@dataclass(frozen=True, slots=True)
class Resolve:
    """Give the verifier the second half of a two-step round; answered by ``VerifierAnswered``."""

    resolution: Resolution


# Effects to wait for: at most one in a step, and the last.
Awaited = Fail | AwaitDrafter | AwaitVerifier | AwaitDraft | AskDrafter | AskAgain | Verify | Follow | Resolve
Effect = Report | Measured | Send | Extend | OrderAhead | Join | Awaited

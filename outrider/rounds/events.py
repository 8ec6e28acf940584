"""Events and effects of ``outrider.rounds.machine``: what it is notified of, and what its caller has to do."""

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
from outrider.rounds.account import VerifyTerms
from outrider.rounds.timing import RoundTiming
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.selection.situation import DrafterView, VerifierView


@dataclass(frozen=True, slots=True)
class LeasedDrafter:
    """The drafter a response has leased.

    Attributes:
        model: its draft model.
        acceptance: how often drafters of that model are right.
        view: as the choice of a round sees it; None until its KV is up to date.
        trusted: whether the answer may hang on what it says and draws.
    """

    model: str
    acceptance: AcceptanceBook
    view: DrafterView | None
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A drafter's answer, where its time went, and the sizes of the messages."""

    answer: Draft | NeedsRow | Resolution
    draft_s: float
    link_s: float
    up_bits: int
    down_bits: int
    model: str  # the draft model


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A block's outcome and the seconds it spent waiting and being verified, over all its passes.

    Attributes:
        draft_tokens: of its draft, so many were verified; None: all of them.
    """

    outcome: Outcome
    queue_s: float
    verify_s: float
    draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """Nothing is under way: this is what there is now.

    Attributes:
        mode: in use for all of the verifier's generations.
    """

    drafter: LeasedDrafter | None
    verifier: VerifierView
    mode: SpeculationMode = DRAFT


@dataclass(frozen=True, slots=True)
class DrafterAnswered:
    """What became of ``AskDrafter``, ``OrderAhead`` or ``AskAgain``; None: the drafter was lost, or lacks the prefix.

    Attributes:
        censored: there is no answer, and what the drafter drew may be why.
    """

    round: int
    exchange: Exchange | None
    censored: bool = False


@dataclass(frozen=True, slots=True)
class VerifierAnswered:
    """What became of ``Verify``, ``Follow`` or ``Resolve``; None: the verifier was lost.

    Attributes:
        turn: what there is now, where ``Follow`` asks for it, and of blocks that joined.
        goes_on: whether an autonomous run's grant may be renewed: its reader keeps up.
    """

    round: int
    result: VerifyResult | None
    turn: Turn | None = None
    goes_on: bool = True


Event = Turn | DrafterAnswered | VerifierAnswered


class Incident(StrEnum):
    """What goes wrong in rounds and is counted."""

    CANDIDATES_REFUSED = "candidates_refused"  # a device took none of those it was sent
    CORRECTION_GIVEN_UP = "correction_given_up"
    DRAFT_GIVEN_UP = "draft_given_up"  # one that had to be used
    ROUND_LOST = "round_lost"  # the verifier lost the generation


@dataclass(frozen=True, slots=True)
class Report:
    incident: Incident
    fields: dict[str, Any] = field(default_factory=dict)  # for the log


@dataclass(frozen=True, slots=True)
class Measured:
    """Tell of a committed round."""

    timing: RoundTiming


@dataclass(frozen=True, slots=True)
class Send:
    """Send what was committed to the client."""

    chunk: GenerationChunk


@dataclass(frozen=True, slots=True)
class Extend:
    """Let the verifier go on by itself so far, and draft so by itself."""

    until_round: int
    lookup: PromptLookupGrant | None


@dataclass(frozen=True, slots=True)
class Fail:
    error: OutriderError


@dataclass(frozen=True, slots=True)
class AwaitDrafter:
    """Wait until a drafter is ready, no longer than until then; afterwards it is the rounds' ``Turn``."""

    until_s: float


@dataclass(frozen=True, slots=True)
class AwaitVerifier:
    """Wait until the verifier answers again; afterwards it is the rounds' ``Turn``."""


@dataclass(frozen=True, slots=True)
class AskDrafter:
    """Have a block drafted; answered by ``DrafterAnswered``.

    Attributes:
        correction: what the device is to draw the next token from, if that is its to draw.
        allowed_s: that the exchange may take beyond the usual deadline.
        binding: what the drafter draws has to be used: it is waited for as long as the drafter lives.
        expected_s: that the exchange should take.
        price: of a token, for a device that drafts while it pays.
        due_at_s: by when the block should be committed; infinity where nothing is owed.
    """

    round: int
    plan: DraftPlan
    correction: CorrectionSource | None
    allowed_s: float
    binding: bool
    expected_s: float
    price: DraftPrice | None = None
    due_at_s: float = inf


@dataclass(frozen=True, slots=True)
class OrderAhead:
    """Have a block drafted while the verifier goes on by itself.

    ``DrafterAnswered`` is told as soon as it is there while a round is with the verifier, else with ``AwaitDraft``.
    """

    asked: AskDrafter


@dataclass(frozen=True, slots=True)
class AwaitDraft:
    """Wait for what was ordered ahead; answered by ``DrafterAnswered``."""

    round: int


@dataclass(frozen=True, slots=True)
class Join:
    """Give the verifier a block that was ordered ahead, in place of the autonomous run it makes.

    ``VerifierAnswered`` tells of the autonomous run's rounds until the block is decided, then of the block.
    """

    block: Block
    cost: VerifyCost
    terms: VerifyTerms


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask the round's drafter what the verifier needs before it decides; answered by ``DrafterAnswered``.

    Attributes:
        allowed_s: as of ``AskDrafter``.
    """

    asked: Undecided
    allowed_s: float


@dataclass(frozen=True, slots=True)
class Verify:
    """Have a block verified; answered by ``VerifierAnswered``."""

    block: Block
    opening: OpenGeneration | None
    cost: VerifyCost
    terms: VerifyTerms


@dataclass(frozen=True, slots=True)
class Follow:
    """Wait for the round that the verifier makes by itself; answered by ``VerifierAnswered``."""

    round: int
    terms: VerifyTerms
    asks: bool  # what there is then, as it matters for the grant to go on


@dataclass(frozen=True, slots=True)
class Resolve:
    """Give the verifier the second half of a round; answered by ``VerifierAnswered``."""

    resolution: Resolution


# The last of a step, if any.
Awaited = Fail | AwaitDrafter | AwaitVerifier | AwaitDraft | AskDrafter | AskAgain | Verify | Follow | Resolve
Effect = Report | Measured | Send | Extend | OrderAhead | Join | Awaited

"""Inputs and output of the choice of a round, and the interface of a selection policy.

Pure data. A policy sees measurements and past verdicts only; see ``outrider.selection.acceptance`` on why that keeps
lossless protocols lossless.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.protocol import RoundTerms
from outrider.protocols.registry import PROTOCOLS
from outrider.selection.acceptance_view import AcceptanceView
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.selection.verifier_load import VerifierLoad


@dataclass(frozen=True, slots=True)
class DrafterView:
    """The drafter a generation has."""

    csi: Csi | None  # state of the way to it; None if not measured yet: taken as free but for ``fixed_s``
    step_s: float  # seconds per draft step at its present load
    fixed_s: float  # seconds per exchange beyond link and steps
    node_share: float = 0.1  # what each further node of a tree's layer adds to the step that computes it, in steps
    hidden_width: int = 0  # of its model's hidden states, where somebody can judge them
    stops: bool = False  # whether it may end a chain before it is as long as ordered
    logs: bool = False  # whether it logs what became of its chains
    by_price: bool = False  # whether it does so by the price in an order
    drafting_weight: float = 1.0  # what a second of its drafting counts for in that price


@dataclass(frozen=True, slots=True)
class VerifierView:
    """The verifier a generation has."""

    cost_model: LinearCostModel  # predicts its batches
    queue_s: float  # what a block waited lately before its batch began
    batch_blocks: float  # blocks per batch lately, >= 1
    fixed_s: float  # seconds per round beyond draft, link, queue and forward pass
    steady: VerifierLoad | None = None  # the same over whole batches, for what everybody is told at once


@dataclass(frozen=True, slots=True)
class SpeedPromise:
    """The token speed a response has to keep, and how it stands (``outrider.scheduling.ledger.Ledger``)."""

    tokens_per_s: float  # promised; 0 promises nothing
    slack_s: float  # time until it is behind, negative if it is; infinity while nothing is owed


@dataclass(frozen=True, slots=True)
class RoundSituation:
    """All that the choice of one round depends on.

    Attributes:
        protocols: those the request and the configuration allow; the first is the configured one.
        mode: of the verifier's speculation tuner; a ``window`` that is fixed goes before it.
    """

    params: SamplingParams
    wire: WireFormat
    position: int  # tokens committed so far, the prompt included
    remaining_tokens: int  # the response may still take
    k_max: int  # longest draft
    drafter: DrafterView | None  # None if no drafter is ready
    verifier: VerifierView
    acceptance: AcceptanceView
    protocols: tuple[ProtocolName, ...]
    window: int | None  # fixed by the request or the configuration; None: the policy's choice
    expansion: tuple[int, ...] = ()  # fixed tree shape; () leaves it to the policy
    rows: int = 0  # if any: nodes, fixed, of trees that grow where the drafter is sure
    may_grow: bool = False  # whether the policy may choose such trees
    later_protocols: tuple[ProtocolName, ...] = ()  # that other rounds of the response may have
    promise: SpeedPromise | None = None  # what the response is owed; None is best effort
    mode: SpeculationMode = DRAFT

    @property
    def grown_rows(self) -> int:
        """``rows`` where trees may grow.

        Which nodes a sampled request's tree has hangs on the noise of positions that are not committed yet. That is
        nothing to rules by which the output is the target's own choice, but a later round by a ratio rule would mind.
        """
        return self.rows if self._nobody_minds else 0

    @property
    def most_grown(self) -> int:
        """Nodes of such trees that the policy may choose beside others."""
        open_ = self.may_grow and self.window is None and not self.expansion
        return self.k_max if open_ and self._nobody_minds else 0

    @property
    def _nobody_minds(self) -> bool:
        return self.params.greedy or all(PROTOCOLS[name].grows for name in (*self.protocols, *self.later_protocols))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one plan is expected to bring."""

    plan: DraftPlan | None  # None is a round without a draft
    seconds_per_token: float
    expected_tokens: float  # committed by the round, correction or bonus token included
    round_s: float
    exchange_s: float = 0.0  # of these, drafting and the link
    alone_s: float = float("inf")  # a round without a draft would take now
    load: float = 0.0  # of the verifier, 0 idle to 1 saturated (``outrider.selection.verifier_load``)
    verifier_s_per_token: float = 0.0  # what a committed token takes of the verifier (``outrider.selection.estimates``)
    sent_tokens: float = 0.0  # of a draft: as many as its plan has, unless its device may stop


class ChoiceReason(StrEnum):
    """Why a plan was chosen. A closed set: a metric's label."""

    FIXED = "fixed"  # the request or the configuration leaves no choice
    CHEAPEST = "cheapest"  # by the policy's own cost
    KEPT = "kept"  # the last round's plan, as good as the cheapest
    NO_DRAFTER = "no_drafter"
    TUNED = "regime"  # nothing is drafted for any of the verifier's generations
    LAST_TOKEN = "last_token"  # noqa: S105 (a draft could not become part of the response)
    FROM_LOOKUP = "looked_up"  # found in the text itself, and worth more than what would have been drafted
    EXPLORING = "exploring"  # a draft that is not the cheapest, to learn whether it has become so


@dataclass(frozen=True, slots=True)
class RoundChoice:
    """The decision of one round. ``runner_up`` is the best that was not chosen."""

    chosen: Estimate
    runner_up: Estimate | None
    reason: ChoiceReason


class SelectionPolicy(Protocol):
    """Chooses what is drafted in each round."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """The next round's plan; ``previous`` is what was chosen for this generation's last round."""
        ...


def round_terms(protocol: ProtocolName, situation: RoundSituation) -> RoundTerms:
    """The situation as a protocol sees it. Most rejections are at the first draft position: its acceptance counts."""
    params, wire = situation.params, situation.wire
    acceptance = situation.acceptance.token_acceptance(PROTOCOLS[protocol].rule(params, wire), 0)
    csi = None if situation.drafter is None else situation.drafter.csi
    return RoundTerms(params, wire, csi, 1.0 - acceptance)


def longest_window(situation: RoundSituation) -> int:
    """Tokens a draft may have on its longest path.

    A round commits one token more than it accepts, so drafting past ``remaining_tokens - 1`` would be waste.
    """
    window = situation.k_max if situation.window is None else min(situation.window, situation.k_max)
    return max(0, min(window, situation.remaining_tokens - 1))


def no_draft_reason(situation: RoundSituation) -> ChoiceReason | None:
    """Why nothing can be drafted; None if something can."""
    if situation.window is None and not situation.mode.drafts:
        return ChoiceReason.TUNED
    if situation.drafter is None:
        return ChoiceReason.NO_DRAFTER
    if situation.window == 0 or not situation.protocols:
        return ChoiceReason.FIXED
    return ChoiceReason.LAST_TOKEN if longest_window(situation) == 0 else None

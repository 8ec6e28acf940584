"""Input, output and interface of policies that choose a round's plan. Pure data.

A policy sees measurements and past verdicts only; ``outrider.selection.acceptance`` says why this keeps lossless
protocols lossless.
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
    csi: Csi | None  # link state; None if not measured yet: the link then counts as free but for ``fixed_s``
    step_s: float  # seconds per draft step at its present load
    fixed_s: float  # seconds per exchange beyond link and steps
    node_share: float = 0.1  # time that each further node of a tree's layer adds to its pass, in draft steps
    hidden_width: int = 0  # of its model's hidden states, if a decision head for them exists; else 0
    stops: bool = False  # whether it may end a chain before it is as long as ordered
    logs: bool = False  # whether it logs verdicts on its chains
    by_price: bool = False  # whether it stops by the price in an order
    chains_only: bool = False  # whether it drafts nothing but chains of token ids,
    chains_first: bool = False  # or these at the least cost, so that anything else is left to requests that ask for it


@dataclass(frozen=True, slots=True)
class VerifierView:
    cost_model: LinearCostModel  # predicts its batches
    queue_s: float  # recent mean wait of a block before its batch began
    batch_blocks: float  # blocks per batch lately, >= 1
    fixed_s: float  # seconds per round beyond draft, link, queue and forward pass
    steady: VerifierLoad | None = None  # averages over whole batches, for prices that go to all generations


@dataclass(frozen=True, slots=True)
class SpeedPromise:
    """The token speed promised to a response, and its slack (``outrider.scheduling.ledger.Ledger``)."""

    tokens_per_s: float  # promised; 0 promises nothing
    slack_s: float  # time until it is behind, negative if it is behind; infinity while nothing is due


@dataclass(frozen=True, slots=True)
class RoundSituation:
    """All that the choice of one round depends on."""

    params: SamplingParams
    wire: WireFormat
    position: int  # tokens committed so far, the prompt included
    remaining_tokens: int  # the response may still take
    k_max: int  # longest draft
    drafter: DrafterView | None  # None if no drafter is ready
    verifier: VerifierView
    acceptance: AcceptanceView
    protocols: tuple[ProtocolName, ...]  # allowed by request and configuration; the first is the configured one
    window: int | None  # fixed by the request or the configuration; None: the policy's choice
    expansion: tuple[int, ...] = ()  # fixed tree shape; () leaves it to the policy
    rows: int = 0  # fixed number of nodes of dynamic trees; 0: none is fixed
    may_grow: bool = False  # whether the policy may choose dynamic trees
    later_protocols: tuple[ProtocolName, ...] = ()  # that other rounds of the response may have
    promise: SpeedPromise | None = None  # None is best effort
    mode: SpeculationMode = DRAFT  # speculation mode in use; a fixed ``window`` overrides it

    @property
    def grown_rows(self) -> int:
        """``rows``, if dynamic trees are exact here; else 0.

        The nodes of a sampled request's dynamic tree depend on the noise of positions that are not committed yet. That
        is exact only if this and all later rounds use rules whose output is the target's own choice, no ratio rule.
        """
        return self.rows if self._nobody_minds else 0

    @property
    def most_grown(self) -> int:
        """Largest number of nodes of dynamic trees that the policy may choose; 0: none."""
        open_ = self.may_grow and self.window is None and not self.expansion
        return self.k_max if open_ and self._nobody_minds else 0

    @property
    def _nobody_minds(self) -> bool:
        return self.params.greedy or all(PROTOCOLS[name].grows for name in (*self.protocols, *self.later_protocols))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected yield and cost of one plan."""

    plan: DraftPlan | None  # None is a round without a draft
    seconds_per_token: float
    expected_tokens: float  # committed by the round, correction or bonus token included
    round_s: float
    exchange_s: float = 0.0  # of these, drafting and the link
    without_draft_s: float = float("inf")  # present duration of a round without a draft
    load: float = 0.0  # of the verifier, 0 idle to 1 saturated (``outrider.selection.verifier_load``)
    verifier_s_per_token: float = 0.0  # verifier seconds of a committed token (``outrider.selection.estimates``)
    sent_tokens: float = 0.0  # expected length of the draft; shorter than its plan if the device stops early


class ChoiceReason(StrEnum):
    """Why a plan was chosen. A closed set: a metric's label."""

    FIXED = "fixed"  # the request or the configuration leaves no choice
    CHEAPEST = "cheapest"  # by the policy's own cost
    KEPT = "kept"  # the last round's plan, within the margin of the cheapest
    NO_DRAFTER = "no_drafter"
    TUNED = "regime"  # the speculation mode has no device draft
    LAST_TOKEN = "last_token"  # noqa: S105 (a draft could not become part of the response)
    FROM_LOOKUP = "looked_up"  # an n-gram draft, cheaper per token than the plan it replaced
    EXPLORING = "exploring"  # a draft that is not the cheapest, to learn whether it has become so


@dataclass(frozen=True, slots=True)
class RoundChoice:
    """The decision of one round. ``runner_up`` is the best that was not chosen."""

    chosen: Estimate
    runner_up: Estimate | None
    reason: ChoiceReason


class SelectionPolicy(Protocol):
    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """Return the choice of the next round's plan; ``previous`` is that of this generation's last round."""


def round_terms(protocol: ProtocolName, situation: RoundSituation) -> RoundTerms:
    """Return a protocol's view of the situation. Most rejections are at the first position, so its rate is taken."""
    params, wire = situation.params, situation.wire
    acceptance = situation.acceptance.token_acceptance(PROTOCOLS[protocol].rule(params, wire), 0)
    csi = None if situation.drafter is None else situation.drafter.csi
    return RoundTerms(params, wire, csi, 1.0 - acceptance)


def longest_window(situation: RoundSituation) -> int:
    """Return the largest depth of a draft: a round commits one token more than it accepts, so one less than remain."""
    window = situation.k_max if situation.window is None else min(situation.window, situation.k_max)
    return max(0, min(window, situation.remaining_tokens - 1))


def no_draft_reason(situation: RoundSituation) -> ChoiceReason | None:
    """Return why nothing can be drafted; None if something can."""
    if situation.window is None and not situation.mode.drafts:
        return ChoiceReason.TUNED
    if situation.drafter is None:
        return ChoiceReason.NO_DRAFTER
    if situation.window == 0 or not situation.protocols:
        return ChoiceReason.FIXED
    return ChoiceReason.LAST_TOKEN if longest_window(situation) == 0 else None

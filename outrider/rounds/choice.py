"""Choose the next round of one generation: build the situation as it is now, and ask the selection policy.

A choice depends on committed tokens and past verdicts only, never on the noise of positions that are not committed:
this is what keeps every mixture of protocols exact.
"""

from dataclasses import dataclass, replace

from outrider.contracts.autonomous_runs import may_be_late
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import ChoiceReport, PlanEstimate, ProtocolName
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, Verified, target_rule
from outrider.protocols.registry import PROTOCOLS, UNJUDGED, harmless_protocols, reproducible_protocols
from outrider.rounds.blocks import Judging, tree_verdict
from outrider.rounds.events import Turn
from outrider.rounds.generation import Generation
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.situation import (
    Estimate,
    RoundChoice,
    RoundSituation,
    SelectionPolicy,
    SpeedPromise,
    round_terms,
)
from outrider.selection.stop_prices import order_price

_NOTHING_KNOWN = AcceptanceBook().view()


@dataclass(frozen=True, slots=True)
class Speculation:
    """What there is to choose from.

    Attributes:
        protocols: to choose from.
        k_max: the longest draft.
        window: fixed for all requests that name none; None leaves it to the policy.
        expansion: fixed tree shape; () leaves it to the policy.
        wire: how messages are written.
        has_drafters: whether there are any.
        drafts_ahead: whether autonomous runs may go on while a device drafts.
        lookup_window: tokens looked up in the text itself, at most; 0: nothing is unless a request asks for it.
        rows: if any, nodes of trees that grow where the drafter is sure, for all requests that name no window.
    """

    protocols: tuple[ProtocolName, ...]
    k_max: int
    window: int | None
    expansion: tuple[int, ...]
    wire: WireFormat
    has_drafters: bool
    drafts_ahead: bool = True
    lookup_window: int = 0
    rows: int = 0


def allowed_protocols(generation: Generation, speculation: Speculation) -> tuple[ProtocolName, ...]:
    """What a request may be drafted by.

    The one it names; else those of the configuration that keep the target's distribution, and where it names a seed
    that keep its very tokens; and those that judge mismatches where it is greedy and allows it.
    """
    request = generation.request
    if request.protocol is not None:
        return (request.protocol,)
    judged = request.semantic and request.params.greedy
    exact = tuple(
        name
        for name in speculation.protocols
        if (judged and PROTOCOLS[name].judged) or PROTOCOLS[name].lossless(speculation.wire)
    )
    if request.reproducible and not request.params.greedy:
        return tuple(name for name in exact if name in reproducible_protocols())
    return exact


class RoundChooser:
    """The choices of one generation."""

    def __init__(self, generation: Generation, speculation: Speculation, policy: SelectionPolicy) -> None:
        """Take the request's wishes into account once."""
        request = generation.request
        self._generation = generation
        self._speculation = speculation
        self._policy = policy
        self._protocols = allowed_protocols(generation, speculation)
        unjudged = tuple(name for name in self._protocols if not PROTOCOLS[name].judged)
        self._unjudged = unjudged or (self._protocols and (UNJUDGED,))  # where nobody judges, greedy verification
        self._window = speculation.window if request.window is None else request.window
        self._expansion = request.expansion or (speculation.expansion if request.window is None else ())
        self._rows = request.rows or (speculation.rows if request.window is None else 0)
        self._previous: RoundChoice | None = None
        self._acceptance: GenerationAcceptance | None = None
        self._situation: RoundSituation | None = None
        self._judge = ""  # of what the last choice's drafter drafts

    @property
    def judging(self) -> Judging:
        """Who judges mismatches of a draft that was chosen last."""
        drafter = None if self._situation is None else self._situation.drafter
        return Judging(self._judge, None if drafter is None else drafter.csi)

    @property
    def may_draft(self) -> bool:
        """Whether a drafter can be of use at all."""
        return bool(self._protocols) and self._window != 0 and self._speculation.has_drafters

    @property
    def follows_tuner(self) -> bool:
        """Whether what is drafted is up to the verifier's speculation tuner, and so tells of it."""
        request = self._generation.request
        if request.window is not None:
            return False
        return self.drafting_follows_tuner or (self._uses_lookup and request.lookup is None)

    @property
    def drafting_follows_tuner(self) -> bool:
        """Whether what devices draft is."""
        return self.may_draft and self._window is None

    @property
    def _uses_lookup(self) -> bool:
        """Whether looking up is up to the tuner."""
        return self._speculation.lookup_window > 0 and self._generation.request.protocol is None

    def choose(self, turn: Turn, promise: SpeedPromise | None) -> RoundChoice:
        """Decide the next round; ``promise`` is what it has to keep."""
        generation, speculation, drafter = self._generation, self._speculation, turn.drafter
        if drafter is not None and (self._acceptance is None or self._acceptance.book is not drafter.acceptance):
            self._acceptance = drafter.acceptance.generation(teaches=not generation.request.params.edited)
        view = drafter.view if drafter is not None and self.may_draft else None
        drafts = view is not None and (self._window is not None or turn.mode.drafts)
        trusted = drafter is not None and drafter.trusted
        hidden_width = view.hidden_width if view is not None and trusted else 0
        protocols = self._protocols if hidden_width else self._unjudged
        if drafter is not None:
            self._judge = drafter.model
        self._situation = RoundSituation(
            params=generation.request.params,
            wire=replace(speculation.wire, hidden_width=hidden_width) if hidden_width else speculation.wire,
            position=generation.position,
            remaining_tokens=generation.remaining_tokens - (generation.correction_by is not None),
            k_max=speculation.k_max,
            drafter=view,
            verifier=turn.verifier,
            acceptance=self._acceptance.view() if drafts and self._acceptance is not None else _NOTHING_KNOWN,
            protocols=protocols if trusted else harmless_protocols(protocols, generation.request.params),
            window=self._window,
            expansion=self._expansion,
            rows=self._rows,
            may_grow=True,
            later_protocols=self._protocols,  # it may have a trusted drafter then
            promise=promise,
            mode=turn.mode,
        )
        self._previous = self._policy.choose(self._situation, self._previous)
        return self._previous

    def price(self, chosen: Estimate) -> DraftPrice | None:
        """Of a token, for the order for what was chosen last; None for a device that goes by none."""
        return None if self._situation is None else order_price(self._situation, chosen)

    def must_stay_whole(self, plan: DraftPlan) -> bool:
        """Whether nothing of a draft may be cut, as its rule would mind.

        The length of a draft that stops tells what is in it; a device that logs could not tell a cut from a rejection.
        """
        situation = self._situation
        device = None if situation is None else situation.drafter
        if situation is None or device is None or not (device.stops or device.logs):
            return False
        return PROTOCOLS[plan.protocol].rule(situation.params, situation.wire) in RATIO_RULES

    def survivals(self, plan: DraftPlan) -> tuple[float, ...]:
        """Of a chain's tokens, each with all before it, as the last choice saw it; () of a tree."""
        if self._situation is None or plan.is_tree:
            return ()
        situation = self._situation
        rule = PROTOCOLS[plan.protocol].rule(situation.params, situation.wire)
        each, _ = situation.acceptance.chain(rule, plan.window)
        return tuple(each.cumprod().tolist())

    def deferral(self, plan: DraftPlan | None) -> Deferral | None:
        """What the verifier is to leave to the device after a rejection."""
        if plan is None or self._situation is None:
            return None
        return PROTOCOLS[plan.protocol].deferral(round_terms(plan.protocol, self._situation))

    def goes_on_beside(self, estimate: Estimate) -> bool:
        """Whether the verifier goes on by itself while the device drafts.

        Only where it does not matter when a draft comes, and where by then it has made as many tokens by itself as the
        draft's round is expected to bring: up to there waiting costs nothing, and takes fewer rows. The less so the
        more loaded it is, as tokens that a draft would have brought then cost others.
        """
        plan = estimate.plan
        if plan is None or not self._speculation.drafts_ahead:
            return False
        if not plan.window or plan.is_tree or self.deferral(plan) is not None:
            return False
        rule = PROTOCOLS[plan.protocol].rule(self._generation.request.params, self._speculation.wire)
        return (
            may_be_late(rule)
            and (1.0 - estimate.load) * estimate.exchange_s > estimate.alone_s * estimate.expected_tokens
        )

    def learn(
        self,
        plan: DraftPlan | None,
        block: Block,
        outcome: Verified,
        equal_tokens: int = 0,
        wrong_tokens: int = 0,
        *,
        judged: bool = True,
        device_tokens: int | None = None,
    ) -> None:
        """A block was verified, behind so many tokens of its chain that were found right or wrong before.

        If it was not ``judged``, its first mismatch was rejected whatever it was. A device has drafted
        ``device_tokens``, of which fewer may be verified.
        """
        if self._acceptance is None:
            return
        params, wire = self._generation.request.params, self._speculation.wire
        rule = target_rule(params) if plan is None else PROTOCOLS[plan.protocol].rule(params, wire)
        if block.rule is AcceptanceRule.SEMANTIC and not judged:
            self._acceptance.observe(AcceptanceRule.GREEDY, outcome.accepted_len, len(block.draft))
        elif block.rule is AcceptanceRule.SEMANTIC:
            self._acceptance.observe_judged(len(block.draft), outcome.accepted_len, outcome.overrides)
        elif block.parents is None:
            drafted = equal_tokens + len(block.draft) + wrong_tokens
            self._acceptance.observe(rule, equal_tokens + outcome.accepted_len, drafted)
        elif plan is not None and plan.rows:
            first = 0 in outcome.accepted_path[:1]
            self._acceptance.observe_grown(rule, (plan.rows, plan.window), outcome.accepted_len, first=first)
        else:
            self._acceptance.observe_tree(rule, *tree_verdict(block.parents, outcome.accepted_path))
        if plan is not None and not plan.is_tree and device_tokens is not None:
            accepted_len = equal_tokens + outcome.accepted_len
            self._acceptance.observe_drafted(rule, accepted_len, device_tokens, plan.window)


def report(choice: RoundChoice) -> ChoiceReport:
    """As a client sees it."""
    runner_up = choice.runner_up
    return ChoiceReport(_estimated(choice.chosen), None if runner_up is None else _estimated(runner_up), choice.reason)


def _estimated(estimate: Estimate) -> PlanEstimate:
    plan = estimate.plan
    return PlanEstimate(
        protocol=None if plan is None else plan.protocol,
        window=0 if plan is None else plan.window,
        expansion=() if plan is None else plan.expansion,
        seconds_per_token=estimate.seconds_per_token,
        expected_tokens=estimate.expected_tokens,
        rows=0 if plan is None else plan.rows,
    )

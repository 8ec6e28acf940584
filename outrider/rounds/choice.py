"""Choice of one generation's next plan: gather the present situation, ask the policy, learn from verdicts.

A choice depends on committed tokens and past verdicts only, never on the noise of positions that are not committed.
This keeps every mixture of protocols exact.
"""

from dataclasses import dataclass, replace

from outrider.contracts.autonomous_runs import may_be_late
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import ChoiceReport, GenerationRequest, PlanEstimate, ProtocolName
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, Verified, target_rule
from outrider.protocols.registry import (
    PLAINEST,
    PROTOCOLS,
    UNJUDGED,
    judged_protocols,
    reproducible_protocols,
    untrusted_safe_protocols,
)
from outrider.rounds.blocks import Judging, tree_verdict
from outrider.rounds.events import RoundInput
from outrider.rounds.generation import Generation
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.modes import DRAFT
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
    """The configured limits of all choices."""

    protocols: tuple[ProtocolName, ...]  # to choose from
    k_max: int  # length of the longest draft, in tokens
    window: int | None  # fixed for all requests that name none; None leaves it to the policy
    wire: WireFormat  # format of the messages
    has_drafters: bool  # whether any drafter group is configured
    drafts_ahead: bool = True  # whether autonomous runs may go on while a device drafts
    lookup_window: int = 0  # longest n-gram draft, in tokens; 0: prompt lookup only where a request asks for it


def allowed_protocols(generation: Generation, speculation: Speculation) -> tuple[ProtocolName, ...]:
    """Return the protocols that may draft for a request.

    The protocol that it names; else those configured ones that are lossless. A sampled request with a seed gets only
    those that reproduce the same tokens. Protocols with a judge only for greedy requests that allow semantic
    verification.
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


def prefix_plan(request: GenerationRequest, *, judged: bool) -> DraftPlan:
    """Return a plan of no tokens that has a drafter compute a prefix with the engine that later plans will need.

    ``judged``: whether hidden states of this drafter can be judged.
    """
    name = request.protocol or PLAINEST
    if name == PLAINEST and judged and request.semantic and request.params.greedy:
        name = judged_protocols()[0]
    elif name == PLAINEST and (request.expansion or request.rows):
        name = next(other for other in PROTOCOLS if other != PLAINEST and PROTOCOLS[other].trees)
    return DraftPlan(name, 0)


class RoundChooser:
    """Chooses the plans of one generation and learns from their verdicts. Mutable."""

    def __init__(self, generation: Generation, speculation: Speculation, policy: SelectionPolicy) -> None:
        """Read what the request fixes; it does not change later."""
        request = generation.request
        self._generation = generation
        self._speculation = speculation
        self._policy = policy
        self._protocols = allowed_protocols(generation, speculation)
        unjudged = tuple(name for name in self._protocols if not PROTOCOLS[name].judged)
        self._unjudged = unjudged or (self._protocols and (UNJUDGED,))  # without a judge: greedy verification
        self._window = speculation.window if request.window is None else request.window
        self._expansion = request.expansion
        self._rows = request.rows
        self.choice: RoundChoice | None = None  # the last one
        self.mode = DRAFT  # speculation mode in use when it was made, or when an autonomous run last went on
        self._acceptance: GenerationAcceptance | None = None
        self._situation: RoundSituation | None = None
        self._judge = ""  # decision head for the last choice's drafter

    @property
    def judging(self) -> Judging:
        """Decision head and link state for the draft that was chosen last."""
        drafter = None if self._situation is None else self._situation.drafter
        return Judging(self._judge, None if drafter is None else drafter.csi)

    @property
    def may_draft(self) -> bool:
        return bool(self._protocols) and self._window != 0 and self._speculation.has_drafters

    @property
    def follows_tuner(self) -> bool:
        """Whether the speculation tuner decides about this generation, so that its rounds are evidence for a mode."""
        request = self._generation.request
        if request.window is not None:
            return False
        return self.drafting_follows_tuner or (self._uses_lookup and request.lookup is None)

    @property
    def drafting_follows_tuner(self) -> bool:
        """Whether the speculation tuner decides if devices draft: not where the window is fixed."""
        return self.may_draft and self._window is None

    @property
    def _uses_lookup(self) -> bool:
        """Whether prompt lookup is possible without the request asking for it."""
        return self._speculation.lookup_window > 0 and self._generation.request.protocol is None

    def _asks_for_more(self, protocols: tuple[ProtocolName, ...]) -> bool:
        """Whether request or configuration ask for what is not a chain of token ids."""
        judged = any(PROTOCOLS[name].judged for name in protocols)
        return judged or PLAINEST not in protocols or bool(self._expansion or self._rows)

    def choose(self, round_input: RoundInput, promise: SpeedPromise | None) -> RoundChoice:
        """Return the policy's choice for the next round; ``promise``: the speed that it has to keep."""
        generation, speculation, drafter = self._generation, self._speculation, round_input.drafter
        if drafter is not None and (self._acceptance is None or self._acceptance.book is not drafter.acceptance):
            self._acceptance = drafter.acceptance.generation(teaches=not generation.request.params.edited)
        view = drafter.view if drafter is not None and self.may_draft else None
        drafts = view is not None and (self._window is not None or round_input.mode.drafts)
        trusted = drafter is not None and drafter.trusted
        hidden_width = view.hidden_width if view is not None and trusted else 0
        protocols = self._protocols if hidden_width else self._unjudged
        asks_for_more = self._asks_for_more(protocols)
        chains_only = view is not None and (view.chains_only or (view.chains_first and not asks_for_more))
        if view is not None and chains_only:
            view = replace(view, chains_only=True)
            protocols = tuple(name for name in protocols if name == PLAINEST)
        if drafter is not None:
            self._judge = drafter.model
        self._situation = RoundSituation(
            params=generation.request.params,
            wire=replace(speculation.wire, hidden_width=hidden_width) if hidden_width else speculation.wire,
            position=generation.position,
            remaining_tokens=generation.remaining_tokens - (generation.correction_by is not None),
            k_max=speculation.k_max,
            drafter=view,
            verifier=round_input.verifier,
            acceptance=self._acceptance.view() if drafts and self._acceptance is not None else _NOTHING_KNOWN,
            protocols=protocols if trusted else untrusted_safe_protocols(protocols, generation.request.params),
            window=self._window,
            expansion=() if chains_only else self._expansion,
            rows=0 if chains_only else self._rows,
            may_grow=not chains_only,
            later_protocols=self._protocols,  # it may have a trusted drafter then
            promise=promise,
            mode=round_input.mode,
        )
        self.choice, self.mode = self._policy.choose(self._situation, self.choice), round_input.mode
        return self.choice

    def price(self, chosen: Estimate) -> DraftPrice | None:
        """Return the price of a draft token at the present load; None for a device whose stop rule uses none."""
        return None if self._situation is None else order_price(self._situation, chosen)

    def must_use(self, plan: DraftPlan) -> bool:
        """Whether drafts have to be used once drawn: ratio rules are exact over all drafts, not over the fast ones."""
        return plan.window > 0 and self.rule(plan) in RATIO_RULES

    def must_stay_whole(self, plan: DraftPlan) -> bool:
        """Whether a draft must not be trimmed: under a ratio rule, of a device that stops early or logs rounds.

        The length of a draft that was stopped early depends on its tokens' features, so trimming by length would be a
        selection by content. A device that logs could not distinguish a trimmed token from a rejected one.
        """
        situation = self._situation
        device = None if situation is None else situation.drafter
        if situation is None or device is None or not (device.stops or device.logs):
            return False
        return PROTOCOLS[plan.protocol].rule(situation.params, situation.wire) in RATIO_RULES

    def survivals(self, plan: DraftPlan) -> tuple[float, ...]:
        """Return the survivals of a chain's tokens as the last choice saw them; () for a tree."""
        if self._situation is None or plan.is_tree:
            return ()
        situation = self._situation
        rule = PROTOCOLS[plan.protocol].rule(situation.params, situation.wire)
        each, _ = situation.acceptance.chain(rule, plan.window)
        return tuple(each.cumprod().tolist())

    def deferral(self, plan: DraftPlan | None) -> Deferral | None:
        """Return what the verifier sends for a device to draw a correction from; None: it draws corrections itself."""
        if plan is None or self._situation is None:
            return None
        return PROTOCOLS[plan.protocol].deferral(round_terms(plan.protocol, self._situation))

    def goes_on_beside(self, estimate: Estimate) -> bool:
        """Whether the verifier decodes on by itself while the device drafts.

        Only under rules whose output does not depend on when a draft arrives, and only where the verifier makes at
        least as many tokens during the exchange as the draft's round would commit:

            (1 - load) * exchange_s > without_draft_s * expected_tokens

        With fewer, going on was up to 14 % slower than waiting (docs/design/0020). The load counts because each token
        that a draft would have brought then takes a row more of the verifier's steps, for which others wait.
        """
        plan = estimate.plan
        if plan is None or not self._speculation.drafts_ahead:
            return False
        if not plan.window or plan.is_tree or self.deferral(plan) is not None:
            return False
        return (
            may_be_late(self.rule(plan))
            and (1.0 - estimate.load) * estimate.exchange_s > estimate.without_draft_s * estimate.expected_tokens
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
        """Update the acceptance statistics with a block's verdict.

        Args:
            plan: None without a device's draft.
            block: as it was verified.
            outcome: its verdict.
            equal_tokens: at the chain's front, found right before the draft arrived.
            wrong_tokens: of the chain, refuted before it arrived.
            judged: false if the device's resolution is missing, so that the first mismatch was rejected unseen.
            device_tokens: drafted by the device, verified or not; None if it sent no draft.
        """
        if self._acceptance is None:
            return
        rule = target_rule(self._generation.request.params) if plan is None else self.rule(plan)
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

    def rule(self, plan: DraftPlan) -> AcceptanceRule:
        return PROTOCOLS[plan.protocol].rule(self._generation.request.params, self._speculation.wire)


def report(choice: RoundChoice) -> ChoiceReport:
    """Return a choice in the form that clients see."""
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

"""Model a device whose rounds are chosen one by one by the product's selection policies.

The policy sees what the product's coordinator sees: acceptance learned from verdicts (one book for a group), running
averages of the verifier's load, the response's slack and the speculation mode. The link state is taken as known; of a
link that changes over time, the state at its start.
"""

from lab.simulation.acceptance_models import NODE_SHARE, DepthAcceptance, acceptance_at, draft_shape
from lab.simulation.device import device_name
from lab.simulation.drafted_rounds import (
    NO_DRAFT,
    GroupDrafts,
    ModelledDevice,
    SimDraft,
    SimResponse,
    accepted_of,
    message_sizes,
)
from lab.simulation.scenario import WIRE, DraftsAt
from outrider.contracts.cost import CostModel, LinearCostModel
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.link import Csi
from outrider.contracts.requests import SamplingParams
from outrider.link.state import profile_csi
from outrider.link.trace import profile_at
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.rules import RunGrant
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.selection.situation import (
    DrafterView,
    RoundChoice,
    RoundSituation,
    SelectionPolicy,
    SpeedPromise,
    VerifierView,
)
from outrider.selection.tuning.speculation_tuner import SpeculationTuner

_PARAMS = SamplingParams()


class GroupChoices:
    """What the devices of a group share: policy, acceptance book, shapes of plans, the verifier's load."""

    def __init__(
        self,
        drafts: GroupDrafts,
        policy: SelectionPolicy,
        cost_model: CostModel,
        load: PresentLoad,
        tuner: SpeculationTuner | None = None,
    ) -> None:
        """Begin with nothing learned; without a ``tuner`` the mode is always ``draft``.

        Raises:
            ParameterError: a cost model that selection cannot compute with.
        """
        if not isinstance(cost_model, LinearCostModel):
            raise ParameterError("verifier.planner_cost_model", "a linear model, as selection is used", cost_model)
        self.group, self.policy = drafts.group, policy
        self.book = AcceptanceBook()
        self.rule = PROTOCOLS[self.group.protocol].rule(_PARAMS, WIRE)
        link = self.group.link
        self.csi: Csi | None = None if link is None else profile_csi(profile_at(link, 0.0))
        self._cost_model, self._load, self._tuner = cost_model, load, tuner
        self._shapes: dict[DraftPlan, tuple[DepthAcceptance, tuple[int, int]]] = {}

    def mode_of(self, device: str) -> SpeculationMode:
        """Return the speculation mode of one device's rounds."""
        return DRAFT if self._tuner is None else self._tuner.mode_of(device)

    @property
    def verifier(self) -> VerifierView:
        """The verifier's recent load under the mode in use."""
        return self._load.view(self._cost_model, DRAFT if self._tuner is None else self._tuner.mode)

    def shape(self, plan: DraftPlan) -> tuple[DepthAcceptance, tuple[int, int]]:
        """Return a plan's shape and message sizes (bits down and up)."""
        if plan not in self._shapes:
            group = self.group
            shape = draft_shape(group.acceptance, plan.window, plan.expansion, group.sibling_factor)
            self._shapes[plan] = shape, message_sizes(plan)
        return self._shapes[plan]


class ChoosingDevice(ModelledDevice):
    """A device of a group with a selection policy."""

    def __init__(
        self, drafts: GroupDrafts, choices: GroupChoices, device: int, seed: int, responses: int | None
    ) -> None:
        """Create a device; ``choices`` are shared by its group."""
        super().__init__(drafts, device, seed, responses, DraftsAt.DEVICE)
        self._choices = choices
        self._acceptance: GenerationAcceptance | None = None
        self._previous: RoundChoice | None = None
        self._unlearned: tuple[DraftPlan, int, int] | None = None  # plan, start and accepted tokens of the last round
        self._verified_tokens: int | None = None  # length of its draft after a cut
        self._prompt_tokens = 0

    @property
    def follows_tuner(self) -> bool:
        """True: the mode decides whether it drafts."""
        return True

    @property
    def autonomous_rounds(self) -> int:
        """Return 0 before the first choice, as a drafter is ready by the first token."""
        return 0 if self._previous is None else RunGrant().rounds(self._previous, may_draft=True)

    def begin(self) -> SimResponse | None:
        """Learn from the last response's last round, then begin the next with the group's acceptance alone."""
        self._learn()
        response = super().begin()
        self._acceptance, self._previous = self._choices.book.generation(), None
        if response is not None:
            self._prompt_tokens = response.prompt_tokens
        return response

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:
        """Choose the round's plan by what was learned so far, then draft by it."""
        choices, chosen = self._choices, self._choose(committed_tokens, remaining_tokens, promise)
        assert self._acceptance is not None
        if (plan := chosen.chosen.plan) is None:
            self._acceptance.observe(choices.rule, 0, 0)
            return NO_DRAFT
        shape, bits = choices.shape(plan)
        accepted = accepted_of(self.acceptance_draws, committed_tokens, shape.passes, plan.window)
        self._unlearned = plan, committed_tokens, accepted
        draft_s = shape.steps[-1] * self.step_s
        chain, _ = self._acceptance.view().chain(choices.rule, 0 if plan.expansion else plan.window)
        return SimDraft(
            nodes=shape.nodes[-1],
            depth=plan.window,
            accepted=accepted,
            draft_s=draft_s,
            expected_tokens=chosen.chosen.expected_tokens,
            bits=bits,
            survivals=tuple(chain.cumprod().tolist()),
            away_s=draft_s + self._drafts.exchange_s(bits),
            cut_as_ordered=self._drafts.cut_as_ordered,
        )

    def stays_autonomous(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:
        """Choose as for a round, and return whether nothing would be drafted."""
        return self._choose(committed_tokens, remaining_tokens, promise).chosen.plan is None

    def cut(self, tokens: int) -> None:
        """Learn from the verified tokens alone."""
        self._verified_tokens = tokens

    def _choose(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> RoundChoice:
        self._learn()
        choices, group = self._choices, self._choices.group
        assert self._acceptance is not None
        situation = RoundSituation(
            params=_PARAMS,
            wire=WIRE,
            position=self._prompt_tokens + committed_tokens,
            remaining_tokens=remaining_tokens,
            k_max=group.window,
            drafter=DrafterView(choices.csi, self.step_s, group.exchange_s, NODE_SHARE),
            verifier=choices.verifier,
            acceptance=self._acceptance.view(),
            protocols=(group.protocol,),
            window=None,
            promise=promise,
            mode=choices.mode_of(device_name(self._device)),
        )
        self._previous = choices.policy.choose(situation, self._previous)
        return self._previous

    def _learn(self) -> None:
        """Learn from the last round's verdict, once; called when the next round shows that it is committed."""
        if self._unlearned is None or self._acceptance is None:
            return
        (plan, start, accepted), self._unlearned = self._unlearned, None
        verified, self._verified_tokens = self._verified_tokens, None
        rule = self._choices.rule
        if not plan.expansion:
            verified = plan.window if verified is None else verified
            self._acceptance.observe(rule, min(accepted, verified), verified)
            return
        offered = plan.expansion[: accepted + 1]
        winners = [self._winner(depth, self.acceptance_draws[start + depth]) for depth in range(accepted)]
        self._acceptance.observe_tree(rule, offered, winners)

    def _winner(self, depth: int, uniform: float) -> int:
        """Return the accepted sibling: the first k whose P(one of siblings 0..k is accepted) exceeds the draw.

        P = 1 - prod(1 - b * factor^j) over j = 0..k (TSLT eq. 39), see ``acceptance_models``. As the position was
        accepted, the draw is below P of all siblings, and the loop ends.
        """
        group = self._choices.group
        first, rejected, sibling = acceptance_at(group.acceptance, depth), 1.0, 0
        while uniform >= 1.0 - (rejected := rejected * (1.0 - first * group.sibling_factor**sibling)):
            sibling += 1
        return sibling

"""Model a device with a stop rule: at each position it sees a prediction, decides, and only then draws the token.

The order matters: a decision that depended on the drawn token would bias ratio rules (docs/design/0029).
"""

from collections.abc import Sequence
from functools import lru_cache

from lab.simulation.acceptance_models import expected_tokens
from lab.simulation.chance import uniforms
from lab.simulation.drafted_rounds import NO_DRAFT, GroupDrafts, ModelledDevice, SimDraft, SimResponse, accepted_of
from lab.simulation.stopping import UNCHANGED, Flags, SimFeatures, SimStopSetting
from outrider.contracts.cost import CostModel
from outrider.contracts.price import PRICE_BITS, DraftPrice
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.stops import SendAndStop, StopBefore, StopDecision, StopRule
from outrider.rounds.present_load import PresentLoad
from outrider.selection.situation import SpeedPromise
from outrider.selection.stop_prices import MarginalDraftCost, RoundsLately, draft_price

_FLAGS = 2  # purpose of chance
_WEIGHT = 0.02  # of one batch's rounds in a group's running means
_PRIOR_ROUNDS = 2  # rounds that the initial values count as


class GroupPrices:
    """What a coordinator knows when it sets an order's price: running means of a group's rounds and the load."""

    def __init__(self, drafts: GroupDrafts, cost_model: CostModel, load: PresentLoad) -> None:
        """Begin with whole windows and the group's true acceptance."""
        self._cost_model, self._load = cost_model, load
        shape, window = drafts.shape, len(drafts.shape.passes)
        steps_s = shape.steps[-1] * drafts.group.step_s if window else 0.0
        self._exchange_s, self._sent = steps_s + drafts.link_s[window], float(window)
        self._committed = drafts.expected[window]
        self._seen = self._committed
        self._accepted = self._committed - 1.0
        self._row_link_s = (drafts.link_s[window] - drafts.link_s[0]) / max(window, 1)
        self._rounds = _PRIOR_ROUNDS

    def price(self, cached_tokens: int, step_s: float) -> DraftPrice:
        """Return the price of an order made now, rounded to the levels of its message."""
        acceptance = self._accepted / self._seen if self._seen > 0.0 else 0.0
        lately = RoundsLately(self._exchange_s, self._sent, self._committed, acceptance)
        further = MarginalDraftCost(step_s, self._row_link_s)
        exact = draft_price(self._cost_model, self._load.lately(), lately, cached_tokens, further)
        return DraftPrice.at_levels(*exact.levels)

    def learn(self, exchange_s: float, sent: int, accepted: int) -> None:
        self._rounds += 1
        weight = max(_WEIGHT / self._load.lately().batch_blocks, 1.0 / self._rounds)
        self._exchange_s += weight * (exchange_s - self._exchange_s)
        self._sent += weight * (sent - self._sent)
        self._committed += weight * (accepted + 1 - self._committed)
        self._accepted += weight * (accepted - self._accepted)
        self._seen += weight * (min(accepted + 1, sent) - self._seen)


class FlaggedChains:
    """Tables of the chains under a predictor that says yes or no; asking it token by token takes four times as long."""

    def __init__(self, flags: Flags, passes: Sequence[float], *, sends_flagged: bool) -> None:
        """Tabulate the expected tokens of chains with each number of unflagged tokens, ``passes`` by depth."""
        self._rates, self._passes, self._sends_flagged = flags.rates, passes, sends_flagged
        yes, no = ([flags.believed(chance, said) for chance in passes] for said in (1.0, 0.0))
        self._whole = [expected_tokens(yes[:depth]) for depth in range(len(passes) + 1)]
        flagged = [expected_tokens([*yes[:depth], no[depth]]) for depth in range(len(passes))]
        self._stopped = flagged if sends_flagged else self._whole

    def until_flagged(
        self, draws: Sequence[float], luck: Sequence[float], start: int, depth: int
    ) -> tuple[int, int, float]:
        """Return rows computed, tokens sent, and the tokens that the round is believed to commit."""
        passes, rates = self._passes, self._rates
        for index in range(depth):
            accepted = draws[start + index] < passes[index]
            if luck[start + index] >= (rates.recall if accepted else rates.false_positive_rate):
                return index + 1, index + self._sends_flagged, self._stopped[index]
        return depth, depth, self._whole[depth]


@lru_cache(maxsize=64)
def _chains_of(stopping: SimStopSetting, passes: tuple[float, ...]) -> FlaggedChains | None:
    """Return tables, which all devices of a group share; None for another predictor or rule."""
    flags, rule = stopping.foreteller, stopping.rule
    if not isinstance(flags, Flags) or not isinstance(rule, StopBefore | SendAndStop):
        return None
    if rule.step(SimFeatures(1.0)) is not StopDecision.DRAW or rule.step(SimFeatures(0.0)) is StopDecision.DRAW:
        return None
    return FlaggedChains(flags, passes, sends_flagged=isinstance(rule, SendAndStop))


class StoppingDevice(ModelledDevice):
    def __init__(
        self,
        drafts: GroupDrafts,
        stopping: SimStopSetting,
        prices: GroupPrices,
        device: int,
        seed: int,
        responses: int | None,
        *,
        speculative: bool = True,
    ) -> None:
        """Create a device. ``prices`` are shared by its group, and used where ``stopping`` has no rule of its own."""
        super().__init__(drafts, device, seed, responses, speculative=speculative)
        self._stopping, self._prices = stopping, prices
        self._chains = _chains_of(stopping, drafts.shape.passes)
        self._luck: list[float] = []
        self._prompt_tokens = 0
        self._unlearned: tuple[float, int, int] | None = (
            None  # exchange time, sent and accepted tokens of the last round
        )

    def begin(self) -> SimResponse | None:
        """Draw the predictor's luck of each position, too."""
        response = super().begin()
        if response is not None:
            self._luck = uniforms(self._seed, self._device, self._number, _FLAGS, response.output_tokens)
            self._prompt_tokens = response.prompt_tokens
        return response

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002 (a choice's)
        """Draft until the rule stops, at most the group's window and what may still be committed."""
        self._learn()
        drafts, depth = self._drafts, min(self._longest, remaining_tokens - 1)
        if depth == 0:
            return NO_DRAFT
        computed, sent, expected = self._until_stopped(committed_tokens, depth)
        accepted = accepted_of(self.acceptance_draws, committed_tokens, drafts.shape.passes, sent)
        draft_s, bits = drafts.shape.steps[computed - 1] * self.step_s, drafts.bits[sent]
        if self._stopping.rule is None:
            bits = bits[0] + PRICE_BITS, bits[1]
            self._unlearned = draft_s + drafts.link_s[sent], sent, accepted
        return SimDraft(sent, sent, accepted, draft_s, expected, bits)

    def _price(self, committed_tokens: int) -> DraftPrice:
        return self._prices.price(self._prompt_tokens + committed_tokens - 1, self.step_s)

    def _until_stopped(self, start: int, depth: int) -> tuple[int, int, float]:
        """Return rows computed, tokens sent, and the tokens that the round is believed to commit.

        A rule that stops before a token has already cost that token's row.
        """
        if self._chains is not None:
            return self._chains.until_flagged(self.acceptance_draws, self._luck, start, depth)
        rule: StopRule = self._stopping.rule or CostAwareStop(UNCHANGED, self._price(start))
        draws, luck, passes = self.acceptance_draws, self._luck, self._drafts.shape.passes
        foreteller, believed = self._stopping.foreteller, list[float]()
        for index in range(depth):
            chance = passes[index]
            predicted = foreteller.predict(chance, luck[start + index], accepted=draws[start + index] < chance)
            features = SimFeatures(predicted)
            step = rule.step(features)
            if step is StopDecision.STOP:
                return index + 1, index, expected_tokens(believed)
            believed.append(foreteller.believed(chance, predicted))
            if step is StopDecision.DRAW_LAST:
                return index + 1, index + 1, expected_tokens(believed)
            rule = rule.after(features)
        return depth, depth, expected_tokens(believed)

    def _learn(self) -> None:
        if self._unlearned is not None:
            self._prices.learn(*self._unlearned)
            self._unlearned = None

"""The whole grid of links under virtual time: the best plan of each fixed protocol, and what ``cheapest`` makes of it.

Costs and acceptance are the measured ones (``bench.protocols.costs``). Everything that decides is the service's own:
the policy, the acceptance statistics, the link's measured state with its probes, the verifier's cost model and the
averages of a coordinator. They see drawn verdicts and virtual seconds. What the chosen plans cost is then counted in
expectation, so that the ratio to the best fixed plan has no luck in it but that of the choices.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from bench.protocols.costs import Costs
from bench.protocols.plan import GRID_RATES_MBPS, GRID_RTTS_MS, NO_DRAFT, Cell
from bench.protocols.rounds import siblings_of
from outrider.contracts.cost import DEFAULT_COST_MODEL, VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.link import Csi
from outrider.contracts.requests import ProtocolName
from outrider.costs.estimator import OnlineEstimator
from outrider.link.latency import exchange_s
from outrider.link.state import LinkSample, profile_csi
from outrider.rounds.load import PresentLoad
from outrider.rounds.timing import RoundTiming
from outrider.selection.acceptance import AcceptanceBook, rule_row
from outrider.selection.cheapest import Cheapest
from outrider.selection.payload import answer_bits, expected_support, order_bits
from outrider.selection.plans import candidate_plans, rule_for
from outrider.selection.situation import RoundChoice, RoundSituation
from serve_app.coordination.drafter_book import DrafterRecord

_PROMPT_TOKENS, _OUTPUT_TOKENS = 50, 100
_LEARNING_ROUNDS, _COUNTED_ROUNDS = 200, 400
_PING_BITS = 96


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One link and temperature.

    Attributes:
        fixed_s: seconds per token of each fixed protocol's best plan, and of no draft.
        best_plan: the best of them all; None is no draft.
        best_draft: the best of those with a draft, and its seconds per token.
        cheapest_s: seconds per token of the plans that ``cheapest`` chose.
        chosen: its plans with their shares of rounds, most frequent first.
    """

    cell: Cell
    fixed_s: dict[str, float]
    best_plan: DraftPlan | None
    best_draft: tuple[DraftPlan | None, float]
    cheapest_s: float
    chosen: tuple[tuple[DraftPlan | None, float], ...]

    @property
    def best_s(self) -> float:
        """Of the best fixed protocol."""
        return min(self.fixed_s.values())

    @property
    def ratio(self) -> float:
        """``cheapest`` over the best."""
        return self.cheapest_s / self.best_s


def grid_cells() -> Iterable[Cell]:
    """All links at both temperatures."""
    return (Cell(*of) for of in product(GRID_RATES_MBPS, GRID_RTTS_MS, (0.0, 1.0)))


def grid_point(cell: Cell, costs: Costs, k_max: int, protocols: tuple[ProtocolName, ...]) -> GridPoint:
    """Compare the fixed plans, and run the policy."""
    csi = profile_csi(cell.profile)
    plans: list[DraftPlan | None] = [None]
    for protocol in protocols:
        plans += [plan for plan in candidate_plans((protocol,), k_max, False, ()).plans if plan is not None]
    spent = {plan: _seconds_per_token(costs, plan, csi) for plan in plans}
    fixed_s = {
        name: min(s for plan, s in spent.items() if (NO_DRAFT if plan is None else plan.protocol) == name)
        for name in (NO_DRAFT, *protocols)
    }
    chosen = _Virtual(cell, costs, k_max, protocols).run()
    expected = [costs.expected(plan, csi) for plan in chosen]
    counts = {plan: chosen.count(plan) / len(chosen) for plan in set(chosen)}
    return GridPoint(
        cell=cell,
        fixed_s=fixed_s,
        best_plan=min(spent, key=spent.__getitem__),
        best_draft=min(((plan, s) for plan, s in spent.items() if plan is not None), key=lambda item: item[1]),
        cheapest_s=sum(one.seconds for one in expected) / sum(one.tokens for one in expected),
        chosen=tuple(sorted(counts.items(), key=lambda item: -item[1])),
    )


def _seconds_per_token(costs: Costs, plan: DraftPlan | None, csi: Csi) -> float:
    expected = costs.expected(plan, csi)
    return expected.seconds / expected.tokens


class _Virtual:
    """A coordinator's knowledge and one generation after another, in virtual time."""

    def __init__(self, cell: Cell, costs: Costs, k_max: int, protocols: tuple[ProtocolName, ...]) -> None:
        self._cell, self._costs, self._k_max, self._protocols = cell, costs, k_max, protocols
        self._csi = profile_csi(cell.profile)
        self._random = np.random.default_rng(0)
        self._now_s = 0.0
        self._record, self._load, self._book = DrafterRecord(), PresentLoad(), AcceptanceBook()
        self._estimator = OnlineEstimator(DEFAULT_COST_MODEL)
        self._chosen: list[DraftPlan | None] = []

    def run(self) -> list[DraftPlan | None]:
        """The plans of the rounds behind the learning."""
        while len(self._chosen) < _LEARNING_ROUNDS + _COUNTED_ROUNDS:
            self._generation()
        return self._chosen[_LEARNING_ROUNDS:]

    def _generation(self) -> None:
        acceptance, previous, made = self._book.generation(), None, 2
        self._pass(None, 0, _PROMPT_TOKENS + 1)  # a response goes on without a draft until its drafter is ready
        self._exchange(_PING_BITS, _PING_BITS, 0.0, 0)  # the drafter's prefill
        # The last token is everybody's alike: no draft could become part of the response.
        while made < _OUTPUT_TOKENS - 1:
            situation = RoundSituation(
                params=self._costs.params,
                wire=self._costs.wire,
                position=_PROMPT_TOKENS + made,
                remaining_tokens=_OUTPUT_TOKENS - made,
                k_max=self._k_max,
                drafter=self._record.view(self._now_s),
                verifier=self._load.view(self._estimator.model),
                acceptance=acceptance.view(),
                protocols=self._protocols,
                window=None,
            )
            choice: RoundChoice = Cheapest().choose(situation, previous)
            previous = choice
            plan = choice.chosen.plan
            self._chosen.append(plan)
            winners = self._verdict(plan)
            self._pass(plan, len(winners), situation.position)
            made += len(winners) + 1
            if plan is None:
                acceptance.observe(rule_for(ProtocolName.TOKEN_IDS, situation.params, situation.wire), 0, 0)
                continue
            rule = rule_for(plan.protocol, situation.params, situation.wire)
            if plan.expansion:
                acceptance.observe_tree(rule, plan.expansion[: len(winners) + 1], winners)
            else:
                acceptance.observe(rule, len(winners), plan.window)

    def _verdict(self, plan: DraftPlan | None) -> list[int]:
        """At each accepted depth, which sibling was."""
        if plan is None:
            return []
        winners: list[int] = []
        view, rule = self._costs.acceptance, rule_row(rule_for(plan.protocol, self._costs.params, self._costs.wire))
        for depth, offered in enumerate(siblings_of(plan)):
            each = view.means[rule, min(depth, view.means.shape[1] - 1)] * view.sibling_factors[rule, :offered]
            accepted = np.flatnonzero(self._random.random(offered) < each)
            if not accepted.size:
                break
            winners.append(int(accepted[0]))
        return winners

    def _pass(self, plan: DraftPlan | None, accepted: int, position: int) -> None:
        """A round's time passes, and is noted as a coordinator does."""
        costs, rows = self._costs, 1 if plan is None else plan.nodes + 1
        draft_s = 0.0 if plan is None else costs.draft_s(plan)
        link_s = costs.expected(plan, self._csi).link_s
        if plan is not None:
            support = expected_support(costs.params, costs.wire.vocab_size)
            self._exchange(order_bits(costs.wire), answer_bits(plan, costs.wire, support), draft_s, plan.window)
        verify_s = costs.verify_s(rows)
        total_s = draft_s + link_s + verify_s + costs.other_s[plan is not None]
        protocol = None if plan is None else plan.protocol
        self._load.round(
            RoundTiming(protocol, rows - 1, accepted, accepted + 1, draft_s, link_s, 0.0, verify_s, total_s)
        )
        self._load.batch(1)
        self._estimator = self._estimator.observed([VerifyCost(rows, position - 1)], verify_s)
        self._now_s += total_s

    def _exchange(self, down_bits: int, up_bits: int, draft_s: float, steps: int) -> None:
        elapsed_s = exchange_s(self._csi, down_bits, up_bits) + draft_s
        self._record.observe(LinkSample(self._now_s + elapsed_s, down_bits, up_bits, elapsed_s, draft_s), steps)
        probe = self._record.link.probe_due(self._now_s)
        if probe is not None:
            probe_s = exchange_s(self._csi, probe.down_bits, probe.up_bits)
            self._record.link.observe(LinkSample(self._now_s, probe.down_bits, probe.up_bits, probe_s, 0.0))

"""What rounds of any plan cost on any link: measured compute times and acceptance, the link's model for the rest.

    round = window * step_s(protocol) + exchange_s(link, bits) + verify_s(rows) + queue and orchestration
    and, where devices draw corrections, after a rejection: the row or the candidates down, the token up

Rows between and beyond those measured are interpolated. Acceptances are shares of tokens tested at each depth; depths
with few tests take the mean of all. Later siblings are accepted less by one factor each, the one that the measured
trees' first layers have.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bench.protocols.rounds import Levels, Response, Round, siblings_of
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import SPLIT_PROTOCOLS, ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.link.latency import down_s, exchange_s, up_s
from outrider.selection.acceptance import DEPTHS, SIBLINGS, AcceptanceBook, AcceptanceView, rule_row
from outrider.selection.candidates import candidate_count, failure_probability, fallback_s, rejection_mass
from outrider.selection.payload import answer_bits, candidates_bits, expected_support, order_bits, row_bits
from outrider.selection.plans import rule_for
from outrider.wire.bits import id_bits

_FEW = 30  # tests of a depth, rounds of a number of rows: fewer say too little
_UNMEASURED_SIBLING = 0.5
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Expected:
    """A round of one plan, on average. ``link_s`` is part of ``seconds``."""

    seconds: float
    tokens: float
    link_s: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured at one temperature.

    Attributes:
        wire: how messages are written.
        params: of the requests.
        step_s: of the drafter, by protocol.
        rows: rows verified at once, ascending; ``rows_s`` the seconds that takes.
        other_s: queue and orchestration, by whether a drafter was asked.
        acceptance: as measured, without uncertainty.
    """

    wire: WireFormat
    params: SamplingParams
    step_s: Mapping[ProtocolName, float]
    rows: tuple[int, ...]
    rows_s: tuple[float, ...]
    other_s: Mapping[bool, float]
    acceptance: AcceptanceView

    def draft_s(self, plan: DraftPlan) -> float:
        """Inside the drafter. A protocol that was never measured steps as fast as the mean of those that were."""
        mean_s = sum(self.step_s.values()) / len(self.step_s)
        return plan.window * self.step_s.get(plan.protocol, mean_s)

    def verify_s(self, rows: int) -> float:
        """Inside the verifier."""
        if rows > self.rows[-1]:
            slope_s = (self.rows_s[-1] - self.rows_s[0]) / max(self.rows[-1] - self.rows[0], 1)
            return self.rows_s[-1] + slope_s * (rows - self.rows[-1])
        return float(np.interp(rows, self.rows, self.rows_s))

    def layers(self, plan: DraftPlan) -> Floats:
        """``[window]``: probability that one of a layer's siblings is accepted, given that the path came so far."""
        siblings = siblings_of(plan)
        grid = self.acceptance.grid(len(siblings), max(siblings))
        rule = rule_row(rule_for(plan.protocol, self.params, self.wire))
        layers: Floats = grid[rule, np.arange(len(siblings)), np.array(siblings)]
        return layers

    def expected(self, plan: DraftPlan | None, csi: Csi) -> Expected:
        """A round of this plan; None is one without a draft."""
        if plan is None:
            return Expected(self.verify_s(1) + self.other_s[False], 1.0, 0.0)
        survivals = np.cumprod(self.layers(plan))
        support = expected_support(self.params, self.wire.vocab_size)
        link_s = exchange_s(csi, order_bits(self.wire), answer_bits(plan, self.wire, support))
        link_s += float(1.0 - survivals[-1]) * self._correction_s(plan.protocol, csi, support)
        seconds = self.draft_s(plan) + link_s + self.verify_s(plan.nodes + 1) + self.other_s[True]
        return Expected(seconds, 1.0 + float(survivals.sum()), link_s)

    def _correction_s(self, protocol: ProtocolName, csi: Csi, support: int) -> float:
        """On the link, after a rejection."""
        wire = self.wire
        if self.params.greedy or protocol not in SPLIT_PROTOCOLS:
            return 0.0
        token_s, row_s = up_s(csi, id_bits(wire.vocab_size)), down_s(csi, row_bits(wire, support))
        if protocol is ProtocolName.DSSD:
            return token_s + row_s
        mass = rejection_mass(self.acceptance, self.params, wire)
        count = candidate_count(mass, wire, csi, support)
        if not count:
            return token_s + row_s
        failed = failure_probability(count, mass)
        again_s = failed * (fallback_s(wire, csi, support) + self.verify_s(1) + self.other_s[True])
        return token_s + down_s(csi, candidates_bits(count, wire, support)) + again_s


def measured_costs(responses: Sequence[Response], levels: Levels, wire: WireFormat, *, greedy: bool) -> Costs:
    """From what was measured; acceptance from the responses of one temperature only."""
    params = SamplingParams(temperature=0.0 if greedy else 1.0)
    rounds = [one for response in responses if response.cell.greedy == greedy for one in response.rounds]
    measured = Counter(one.timing.drafted_tokens + 1 for response in responses for one in response.rounds)
    by_rows = sorted((drafted + 1, seconds) for (drafted, defers), seconds in levels.verify_s.items() if not defers)
    by_rows = [(rows, seconds) for rows, seconds in by_rows if measured[rows] >= _FEW] or by_rows
    return Costs(
        wire=wire,
        params=params,
        step_s=levels.step_s,
        rows=tuple(rows for rows, _ in by_rows),
        rows_s=tuple(seconds for _, seconds in by_rows),
        other_s=levels.other_s,
        acceptance=measured_acceptance(rounds, params, wire),
    )


def measured_acceptance(rounds: Sequence[Round], params: SamplingParams, wire: WireFormat) -> AcceptanceView:
    """Shares of drafted tokens that were accepted, by rule and depth."""
    rules = tuple(AcceptanceRule)
    tested, accepted = np.zeros((len(rules), DEPTHS)), np.zeros((len(rules), DEPTHS))
    first_layers: dict[AcceptanceRule, list[tuple[int, bool]]] = {}
    for one in rounds:
        if one.plan is None:
            continue
        rule, timing = rule_for(one.plan.protocol, params, wire), one.timing
        if one.plan.expansion:
            first_layers.setdefault(rule, []).append((one.plan.expansion[0], timing.accepted_tokens > 0))
            continue
        for depth in range(min(timing.accepted_tokens + 1, timing.drafted_tokens, DEPTHS)):
            tested[rule_row(rule), depth] += 1
            accepted[rule_row(rule), depth] += depth < timing.accepted_tokens
    ratio, distinct = rule_row(AcceptanceRule.RATIO), rule_row(AcceptanceRule.RATIO_DISTINCT)
    tested[distinct] = tested[ratio]
    accepted[distinct] = accepted[ratio]
    # A rule that this temperature never uses is never asked for: any number will do.
    pooled = np.where(tested.sum(1) > 0, accepted.sum(1) / np.maximum(tested.sum(1), 1), 0.5)[:, None]
    means = np.where(tested >= _FEW, accepted / np.maximum(tested, 1), pooled)
    factors = np.full((len(rules), 1), _UNMEASURED_SIBLING)
    for rule, layers in first_layers.items():
        factors[rule_row(rule)] = sibling_factor(layers, float(means[rule_row(rule), 0]))
    return replace(
        AcceptanceBook().view(),
        means=means,
        deviations=np.zeros_like(means),
        sibling_factors=factors ** np.arange(SIBLINGS),
    )


def sibling_factor(layers: Sequence[tuple[int, bool]], first: float) -> float:
    """What each sibling's acceptance is of the one before it, in [0, 1].

    Args:
        layers: siblings offered at the root, and whether one of them was accepted.
        first: acceptance of the first one.
    """
    wanted = sum(accepted for _, accepted in layers)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        found = sum(1.0 - float(np.prod([1.0 - first * middle**j for j in range(offered)])) for offered, _ in layers)
        low, high = (middle, high) if found < wanted else (low, middle)
    return low

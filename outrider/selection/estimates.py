"""Expected seconds per committed token of every plan, from what is measured now. Vectorised over plans.

A round without a draft is verifier work only; one with a draft adds the device and the link:

    round  = draft + link + queue + batch + the verifier's fixed part
    draft  = the drafter's fixed part + steps * step_s         a chain of K tokens is K steps, a tree one per layer
    link   = exchange_s(bits down, bits up)                    WISV eq. 6; rtt + bits over effective rates
    batch  = T(batch_blocks blocks of 1 + nodes rows)          WISP eq. 18, 19
    queue  = queue_s * batch / (batch of the last round's plan)

Two assumptions carry the behaviour under load. *All generations choose alike*: the plan's rows are charged to every
block of the batch, not to this one alone. *Waiting is waiting for batches*: what a block waited lately is so many
batches of the kind chosen lately, and will be as many of the kind chosen now. Their limits are what they should be:

- Idle verifier (queue 0, one block per batch): latency counts. The batch's constant part and the RTT are shared by
  the tokens of a round, so a fast drafter gets long windows, and a long RTT longer ones.
- Saturated verifier (queue far above draft + link): the round is a number of batches, whatever the plan. What remains
  is batch seconds per committed token, T(K) / E(K) against T(0). Many blocks whose rows cost in proportion never win
  that by drafting, unless every token is accepted; blocks whose cost is the reading of a long prefix do.

DSSD's corrections come one round later and cost no token: the round has the same yield, and its share of rejections
pays for a row (or candidates, and now and then one more exchange for the row) down and one more id up.

Acceptance is per rule: tslt's loss to truncation (at most the mass cut off, TSLT eq. 20) is in the ratio rule's
statistics as far as tslt was what was measured.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.link.latency import down_s, up_s
from outrider.selection.acceptance import rule_row
from outrider.selection.candidates import expected_candidates, failure_probability, fallback_s, rejection_mass
from outrider.selection.load import verifier_load
from outrider.selection.payload import answer_bits, candidates_bits, expected_support, order_bits, row_bits
from outrider.selection.plans import PlanSet, rule_for
from outrider.selection.situation import DrafterView, Estimate, RoundSituation
from outrider.wire.bits import id_bits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """One number per plan in each array.

    Attributes:
        verifier_s_per_token: what a committed token takes of the verifier: the block's marginal seconds in a batch of
            the present size, and its share of the batch's constant part.
        load: of the verifier while the last round ran, 0 idle to 1 saturated (``outrider.selection.load``).
        rules: rows of ``AcceptanceView``.
        windows: 0 without a draft.
    """

    plans: PlanSet
    seconds_per_token: Floats
    expected_tokens: Floats
    round_s: Floats
    verifier_s_per_token: Floats
    load: float
    rules: Ints
    windows: Ints

    def at(self, index: int) -> Estimate:
        """One plan's."""
        return Estimate(
            self.plans.plans[index],
            float(self.seconds_per_token[index]),
            float(self.expected_tokens[index]),
            float(self.round_s[index]),
        )


def estimate(situation: RoundSituation, plans: PlanSet, last_plan: DraftPlan | None = None) -> Estimates:
    """What each plan is expected to bring.

    Args:
        situation: what is known now.
        plans: to compare.
        last_plan: of the last round, while ``queue_s`` was measured.

    Raises:
        ParameterError: a plan has a draft where there is no drafter.
    """
    params, wire = situation.params, situation.wire
    support = expected_support(params, wire.vocab_size)
    table = _table(plans, params.greedy, wire, support)
    grid = situation.acceptance.grid(table.depths, table.siblings)
    survivals: Floats = grid.ravel().take(table.cells).cumprod(axis=1)
    tokens = 1.0 + survivals.sum(axis=1)
    verifier, model, cached = situation.verifier, situation.verifier.cost_model, max(situation.position - 1, 0)

    def batch_of(rows: int) -> float:
        return model.predict_alike_s(VerifyCost(rows, cached), verifier.batch_blocks)

    batch_s: Floats = np.array([batch_of(rows) for rows in table.row_counts]).take(table.row_index)
    last_s = batch_of(1 if last_plan is None else last_plan.nodes + 1)
    waited = verifier.queue_s / last_s if last_s > 0.0 else 0.0
    round_s = (1.0 + waited) * batch_s + verifier.fixed_s
    if table.drafts.any():
        if situation.drafter is None:
            raise ParameterError("plans", "no draft where there is no drafter", plans.plans)
        rejected: Floats = 1.0 - survivals.ravel().take(table.last_cells)
        drafter_s = _draft_s(situation.drafter, table) + _link_s(situation, table, rejected, support)
        round_s = round_s + drafter_s * table.drafts
    return Estimates(
        plans,
        round_s / tokens,
        tokens,
        round_s,
        batch_s / (verifier.batch_blocks * tokens),
        verifier_load(waited, 1.0 - model.predict_s(()) / last_s if last_s > 0.0 else 0.0),
        table.rules,
        table.windows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What is the same for a set of plans in every round. ``P`` plans, ``L`` depths."""

    cells: Ints  # [P, L] into the acceptance grid, ravelled: rule, depth, siblings offered
    last_cells: Ints  # [P] into [P, L]: a plan's deepest layer
    depths: int
    siblings: int
    rules: Ints  # [P]
    windows: Ints  # [P]
    drafts: Floats  # [P] 0 or 1
    steps: Floats  # [P] forward passes of the drafter
    further_nodes: Floats  # [P] beyond one in each of these
    row_counts: tuple[int, ...]  # different numbers of rows of a block at the verifier
    row_index: Ints  # [P] into these
    up_bits: Floats
    down_bits: Floats
    sends_row: Floats  # [P] 0 or 1: a rejection brings the row down; likewise candidates
    sends_candidates: Floats


@lru_cache(maxsize=256)
def _table(plans: PlanSet, greedy: bool, wire: WireFormat, support: int) -> _Table:
    params = SamplingParams(temperature=0.0 if greedy else 1.0)
    drafts = [plan or DraftPlan(ProtocolName.TOKEN_IDS, 0) for plan in plans.plans]
    shapes = [plan.expansion or (1,) * plan.window for plan in drafts]
    depths = max(1, *(len(shape) for shape in shapes))
    offered = np.array([(*shape, *(0,) * (depths - len(shape))) for shape in shapes])
    siblings = int(offered.max(initial=1))
    rules = np.array([rule_row(rule_for(plan.protocol, params, wire)) for plan in drafts])
    row_counts = sorted({plan.nodes + 1 for plan in drafts})
    kinds = [plan.protocol if plan.window and support > 1 else None for plan in drafts]
    return _Table(
        cells=(rules[:, None] * depths + np.arange(depths)) * (siblings + 1) + offered,
        last_cells=np.arange(len(drafts)) * depths + np.array([max(len(shape) - 1, 0) for shape in shapes]),
        depths=depths,
        siblings=siblings,
        rules=rules,
        windows=np.array([plan.window for plan in drafts]),
        drafts=np.array([float(plan.window > 0) for plan in drafts]),
        steps=np.array([float(plan.window) for plan in drafts]),
        further_nodes=np.array([float(_further_nodes(plan)) for plan in drafts]),
        row_counts=tuple(row_counts),
        row_index=np.array([row_counts.index(plan.nodes + 1) for plan in drafts]),
        up_bits=np.array([answer_bits(plan, wire, support) for plan in drafts]),
        down_bits=np.full(len(drafts), order_bits(wire)),
        sends_row=np.array([float(kind is ProtocolName.DSSD) for kind in kinds]),
        sends_candidates=np.array([float(kind is ProtocolName.DSSD_CANDIDATES) for kind in kinds]),
    )


def _further_nodes(plan: DraftPlan) -> int:
    """Nodes that share a drafter step with another: parents of a layer, the first aside."""
    parents, further = 1, 0
    for children in plan.expansion:
        further += parents - 1
        parents *= children
    return further


def _draft_s(drafter: DrafterView, table: _Table) -> Floats:
    seconds: Floats = drafter.step_s * (table.steps + drafter.node_share * table.further_nodes) + drafter.fixed_s
    return seconds


def _link_s(situation: RoundSituation, table: _Table, rejected: Floats, support: int) -> Floats:
    drafter, wire = situation.drafter, situation.wire
    if drafter is None or drafter.csi is None:
        return np.zeros(len(rejected))
    csi = drafter.csi
    up_bit_s, down_bit_s = up_s(csi, 1.0), down_s(csi, 1.0)
    seconds: Floats = csi.rtt_s + table.up_bits * up_bit_s + table.down_bits * down_bit_s
    if not (table.sends_row.any() or table.sends_candidates.any()):
        return seconds
    correction_up_s = id_bits(wire.vocab_size) * up_bit_s
    row_s = row_bits(wire, support) * down_bit_s
    candidates_s = row_s
    count = expected_candidates(situation) if table.sends_candidates.any() else 0
    if count:
        failed = failure_probability(count, rejection_mass(situation.acceptance, situation.params, wire))
        candidates_s = candidates_bits(count, wire, support) * down_bit_s + failed * fallback_s(wire, csi, support)
    correction_s = table.sends_row * (row_s + correction_up_s) + table.sends_candidates * (
        candidates_s + correction_up_s
    )
    return seconds + rejected * correction_s

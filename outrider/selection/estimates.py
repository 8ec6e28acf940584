"""Estimate the seconds per committed token of every plan from present measurements. Vectorised over plans.

A round without a draft is verifier work only; one with a draft adds the device and the link:

    round  = draft + link + queue + batch + the verifier's fixed part
    draft  = the drafter's fixed part + steps * step_s         a chain of K tokens is K steps, a tree one per layer
    link   = exchange_s(bits down, bits up)                    WISV eq. 6; rtt + bits over effective rates
    batch  = T(batch_blocks blocks of 1 + nodes rows)          WISP eq. 18, 19
    queue  = queue_s * batch / (batch of the last round's plan)

Under load *all generations choose alike*: the plan's rows are charged to every block of the batch. *Waiting is waiting
for batches*: a block's recent wait is a number of batches of the last plan, and of its own under another plan.

DSSD's corrections come one round later and cost no token: the yield is the same. A rejection costs a row down (or
candidates, and sometimes one more exchange for the row) and one id more up. A second step (WISV's selective upload)
costs as often as the target would have chosen another token than one of the draft's.

Where devices stop drafts early, gain and cost are those of the share that they draft (``DraftedShares``). It is counted
on drafts that were accepted to their end, since a choice must not know how long rejected drafts were. Devices are surer
after accepted tokens, so costs tend to be overestimated.

Acceptance is per rule: TSLT's loss to truncation (at most the mass cut off, TSLT eq. 20) is part of the ratio rule's
statistics, as far as these were measured with that protocol.
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
from outrider.contracts.verifying import AcceptanceRule, target_rule
from outrider.link.latency import down_s, up_s
from outrider.protocols.payload import expected_support, order_bits
from outrider.protocols.registry import PROTOCOLS, answer_bits
from outrider.selection.acceptance_view import AcceptanceView, rule_row
from outrider.selection.plans import PlanSet
from outrider.selection.situation import DrafterView, Estimate, RoundSituation, round_terms
from outrider.selection.verifier_load import verifier_load

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Arrays of one number per plan, ``[P]``."""

    plans: PlanSet
    seconds_per_token: Floats
    expected_tokens: Floats
    round_s: Floats
    # verifier seconds of a committed token: the block's marginal seconds in a batch of the present size, and its share
    # of the batch's fixed cost
    verifier_s_per_token: Floats
    load: (
        float  # of the verifier while the last round ran, 0 idle to 1 saturated (``outrider.selection.verifier_load``)
    )
    rules: Ints  # rows of ``AcceptanceView``
    windows: Ints  # 0 without a draft
    sent_tokens: Floats  # of a draft
    exchange_s: Floats  # drafting and the link, 0 without a draft
    without_draft_s: float  # duration of a round without a draft

    def at(self, index: int) -> Estimate:
        return Estimate(
            self.plans.plans[index],
            float(self.seconds_per_token[index]),
            float(self.expected_tokens[index]),
            float(self.round_s[index]),
            float(self.exchange_s[index]),
            self.without_draft_s,
            self.load,
            float(self.verifier_s_per_token[index]),
            float(self.sent_tokens[index]),
        )


def estimate(situation: RoundSituation, plans: PlanSet, last_plan: DraftPlan | None = None) -> Estimates:
    """Estimate yield and cost of each plan.

    ``last_plan`` is the plan of the last round, during which ``queue_s`` was measured.

    Raises:
        ParameterError: a plan has a draft where there is no drafter.
    """
    params, wire = situation.params, situation.wire
    support = expected_support(params, wire.vocab_size)
    table = _table(plans, params.greedy, wire, support)
    grid = situation.acceptance.grid(table.depths, table.siblings)
    each: Floats = grid.ravel().take(table.cells)
    for index, rows, window in table.grown:
        passes = situation.acceptance.as_grown((rows, window))[table.rules[index]]
        each[index, :window] = passes.take(range(window), mode="clip")
    drafted = _drafted(situation.acceptance, table)
    # A token counts if it is drafted and accepted, and all before it were; E = 1 + sum of survivals (TSLT eq. 8).
    survivals: Floats = (each if drafted is None else each * drafted).cumprod(axis=1)
    tokens = 1.0 + survivals.sum(axis=1)
    verifier, sent = situation.verifier, _sent_share(drafted, table)
    batch_s = _batches_s(situation, table, sent)
    waited, load = _waited(situation, last_plan)
    round_s = (1.0 + waited) * batch_s + verifier.fixed_s
    exchange_s: Floats = np.zeros(len(round_s))
    if table.drafts.any():
        if situation.drafter is None:
            raise ParameterError("plans", "no draft where there is no drafter", plans.plans)
        rejected = _rejected(table, each, survivals, drafted)
        seconds = _draft_s(situation.drafter, table, sent) + _link_s(situation, table, rejected, sent)
        seconds = seconds + _again_s(situation, plans)
        exchange_s = seconds * table.drafts
        round_s = round_s + exchange_s
    return Estimates(
        plans,
        round_s / tokens,
        tokens,
        round_s,
        batch_s / (verifier.batch_blocks * tokens),
        load,
        table.rules,
        table.windows,
        table.nodes if sent is None else table.nodes * sent,
        exchange_s,
        (1.0 + waited) * _batch_s(situation, 1) + verifier.fixed_s,
    )


def estimate_without_draft(situation: RoundSituation, last_plan: DraftPlan | None = None) -> Estimate:
    """Estimate a round without a draft, as ``estimate`` does but without arrays: often it is the only plan."""
    waited, load = _waited(situation, last_plan)
    batch_s, verifier = _batch_s(situation, 1), situation.verifier
    round_s, each_s = (1.0 + waited) * batch_s + verifier.fixed_s, batch_s / verifier.batch_blocks
    return Estimate(None, round_s, 1.0, round_s, without_draft_s=round_s, load=load, verifier_s_per_token=each_s)


def _batch_s(situation: RoundSituation, rows: int) -> float:
    """Predict the seconds of a batch in which every block has ``rows`` rows."""
    verifier, cached = situation.verifier, max(situation.position - 1, 0)
    return verifier.cost_model.predict_alike_s(VerifyCost(rows, cached), verifier.batch_blocks)


def _waited(situation: RoundSituation, last_plan: DraftPlan | None) -> tuple[float, float]:
    """Return the wait of a block, in batches of the last round's plan, and the verifier's load then."""
    verifier = situation.verifier
    last_s = _batch_s(situation, 1 if last_plan is None else last_plan.nodes + 1)
    if last_s <= 0.0:
        return 0.0, verifier_load(0.0, 0.0)
    # A batch without blocks takes the fixed cost c; the rest of the last batch, 1 - c / T, is its blocks' work.
    waited = verifier.queue_s / last_s
    return waited, verifier_load(waited, 1.0 - verifier.cost_model.predict_s(()) / last_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What depends on the set of plans only, computed once. ``P`` plans, ``L`` depths."""

    cells: Ints  # [P, L] indices into the ravelled acceptance grid: rule, depth, siblings offered
    last_cells: Ints  # [P] into [P, L]: a plan's deepest layer
    depths: int
    siblings: int
    rules: Ints  # [P]
    windows: Ints  # [P]
    chains: Bools  # [P] whether a device may stop it early
    grown: tuple[tuple[int, int, int], ...]  # of plans with dynamic trees: index, rows and window
    drafts: Floats  # [P] 0 or 1
    steps: Floats  # [P] forward passes of the drafter
    further_nodes: Floats  # [P] that these passes expand, beyond one each
    nodes: Floats  # [P] draft tokens
    row_counts: tuple[int, ...]  # different numbers of rows of a block at the verifier
    row_index: Ints  # [P] into these
    up_bits: Floats
    empty_bits: Floats  # [P] of a draft without tokens
    down_bits: float
    drafted_by: tuple[tuple[ProtocolName, Floats], ...]  # each protocol, and [P] 1 for its plans with a draft, else 0


@lru_cache(maxsize=256)
def _table(plans: PlanSet, greedy: bool, wire: WireFormat, support: int) -> _Table:
    params = SamplingParams(temperature=0.0 if greedy else 1.0)
    drafted = [plan for plan in plans.plans if plan is not None]
    shapes = [() if plan is None else plan.expansion or (1,) * plan.window for plan in plans.plans]
    depths = max(1, *(len(shape) for shape in shapes))
    offered = np.array([(*shape, *(0,) * (depths - len(shape))) for shape in shapes])
    siblings = int(offered.max(initial=1))
    rules = np.array([rule_row(_rule(plan, params, wire)) for plan in plans.plans])
    rows = [1 if plan is None else plan.nodes + 1 for plan in plans.plans]
    row_counts = sorted(set(rows))
    names = [None if plan is None or not plan.window else plan.protocol for plan in plans.plans]
    return _Table(
        cells=(rules[:, None] * depths + np.arange(depths)) * (siblings + 1) + offered,
        last_cells=np.arange(len(rows)) * depths + np.array([max(len(shape) - 1, 0) for shape in shapes]),
        depths=depths,
        siblings=siblings,
        rules=rules,
        windows=np.array([len(shape) for shape in shapes]),
        chains=np.array([plan is not None and not plan.is_tree for plan in plans.plans]),
        grown=tuple(
            (i, plan.rows, plan.window) for i, plan in enumerate(plans.plans) if plan is not None and plan.rows
        ),
        drafts=np.array([float(len(shape) > 0) for shape in shapes]),
        steps=np.array([float(len(shape)) for shape in shapes]),
        further_nodes=np.array([float(_further_nodes(*each)) for each in zip(plans.plans, shapes, strict=True)]),
        nodes=np.array(rows) - 1.0,
        row_counts=tuple(row_counts),
        row_index=np.array([row_counts.index(count) for count in rows]),
        up_bits=np.array([0.0 if plan is None else answer_bits(plan, wire, support) for plan in plans.plans]),
        empty_bits=np.array([_empty_bits(plan, wire, support) for plan in plans.plans]),
        down_bits=order_bits(wire),
        drafted_by=tuple(
            (protocol, np.array([float(name == protocol) for name in names]))
            for protocol in dict.fromkeys(plan.protocol for plan in drafted)
        ),
    )


def _drafted(acceptance: AcceptanceView, table: _Table) -> Floats | None:
    """Return ``[P, L]``: probability that a chain's token is drafted, 1 in trees; None if all are 1."""
    if acceptance.drafted is None:
        return None
    shares = acceptance.drafted.take(range(table.depths), axis=1, mode="clip")[table.rules]
    drafted: Floats = np.where(table.chains[:, None], shares, 1.0)
    return drafted


def _sent_share(drafted: Floats | None, table: _Table) -> Floats | None:
    """Return ``[P]``: mean share of each draft that is sent; None if all are sent whole."""
    if drafted is None:
        return None
    within: Bools = np.arange(table.depths) < table.windows[:, None]
    sent: Floats = (drafted.cumprod(axis=1) * within).sum(axis=1) / np.maximum(table.windows, 1)
    return sent


def _batches_s(situation: RoundSituation, table: _Table, sent: Floats | None) -> Floats:
    """Return ``[P]``: seconds of a batch whose blocks all follow the plan."""
    if sent is None:
        return np.array([_batch_s(situation, rows) for rows in table.row_counts]).take(table.row_index)
    verifier, cached = situation.verifier, max(situation.position - 1, 0)
    rows = 1.0 + table.nodes * sent
    works = verifier.batch_blocks * np.stack([rows, rows * (rows + cached), np.full(len(rows), float(cached))], axis=1)
    return verifier.cost_model.predict_works_s(works)


def _rejected(table: _Table, each: Floats, survivals: Floats, drafted: Floats | None) -> Floats:
    """Return ``[P]``: probability that a token is rejected; in a draft stopped early and accepted whole, none is."""
    if drafted is None:
        rejected: Floats = 1.0 - survivals.ravel().take(table.last_cells)
        return rejected
    before = np.concatenate((np.ones((len(survivals), 1)), survivals[:, :-1]), axis=1)
    met = (before * drafted * (1.0 - each)) * (np.arange(table.depths) < table.windows[:, None])
    total: Floats = met.sum(axis=1)
    return total


def _again_s(situation: RoundSituation, plans: PlanSet) -> Floats | float:
    """Return ``[P]``: expected seconds of second steps, which draft tokens that are not the target's choice cause."""
    if not any(PROTOCOLS[protocol].second_step is not None for protocol in situation.protocols):
        return 0.0
    seconds = np.zeros(len(plans.plans))
    for index, plan in enumerate(plans.plans):
        if plan is None or PROTOCOLS[plan.protocol].second_step is None or not plan.window:
            continue
        if _rule(plan, situation.params, situation.wire) is not AcceptanceRule.SEMANTIC:
            continue
        # A match is what the greedy rule accepts. Given any mismatch, their expected number is sum(1 - match) / some.
        match = [situation.acceptance.token_acceptance(AcceptanceRule.GREEDY, depth) for depth in range(plan.window)]
        some = 1.0 - float(np.prod(match))
        if some > 0.0:
            terms, mismatches = round_terms(plan.protocol, situation), sum(1.0 - one for one in match) / some
            seconds[index] = some * PROTOCOLS[plan.protocol].again_s(terms, plan, max(1.0, mismatches))
    return seconds


def _rule(plan: DraftPlan | None, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:
    return target_rule(params) if plan is None else PROTOCOLS[plan.protocol].rule(params, wire)


def _empty_bits(plan: DraftPlan | None, wire: WireFormat, support: int) -> float:
    return 0.0 if plan is None else float(answer_bits(DraftPlan(plan.protocol, 0), wire, support))


def _further_nodes(plan: DraftPlan | None, shape: tuple[int, ...]) -> int:
    """Count the nodes that share a drafter pass with another: all parents of a layer but the first.

    In a dynamic tree all nodes of a layer but one are taken for parents.
    """
    if plan is not None and plan.rows:
        return plan.rows - plan.window
    parents, further = 1, 0
    for children in shape:
        further += parents - 1
        parents *= children
    return further


def _draft_s(drafter: DrafterView, table: _Table, sent: Floats | None) -> Floats:
    steps = table.steps if sent is None else table.steps * sent
    seconds: Floats = drafter.step_s * (steps + drafter.node_share * table.further_nodes) + drafter.fixed_s
    return seconds


def _link_s(situation: RoundSituation, table: _Table, rejected: Floats, sent: Floats | None) -> Floats:
    if situation.drafter is None or situation.drafter.csi is None:
        return np.zeros(len(rejected))
    csi = situation.drafter.csi
    up_bits = table.up_bits if sent is None else table.empty_bits + sent * (table.up_bits - table.empty_bits)
    seconds: Floats = csi.rtt_s + up_bits * up_s(csi, 1.0) + table.down_bits * down_s(csi, 1.0)
    for protocol, drafted in table.drafted_by:
        rejection_s = PROTOCOLS[protocol].rejection_s(round_terms(protocol, situation))
        if rejection_s:
            seconds = seconds + rejected * rejection_s * drafted
    return seconds

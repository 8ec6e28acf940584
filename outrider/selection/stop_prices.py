"""The price of one more draft token at the present load, in expected tokens; it is sent with each order.

What a second is worth follows from what rounds bring in one. Of N generations that all draft alike, R seconds a round
and E tokens,

    N E = X R,   R = exchange + (1 + w) T + fixed,   T = c / (1 - u)

where X is everybody's tokens per second, w the batches a block waits for, and T a batch: its constant part c over what
the verifier's work, a share u of its time, leaves of it (``outrider.selection.verifier_load``). A token that lengthens
drafts by dE, exchanges by dx and batches of the present size by dT leaves X as it is where

    dE / E * (R + a (T' - c)) = dx + a dT,   a = (1 + w) / (1 - u)

T' is a batch without the prompts that are computed in it: no draft changes what they take, though they are load. So
a second of an exchange costs ``E / (R + a (T' - c))`` tokens, and a second of batches ``a`` times that. On an idle
verifier this is the generation's own speed. The busier it is, the less a step costs beside a row: what a device
computes while others' blocks fill the batches hardly costs anybody anything.

Two corrections, as in ``verifier_load``. Batches grow with what comes only as far as blocks wait for one another: a
generation alone has no fewer blocks in its batch for having longer drafts. And where blocks wait for more than the
batch that runs, batches are as large as they may be, and their constant part is paid as well.

A token is sent for the price of its row. Behind it another one is drafted if that should bring a row and a step, and it
brings its own acceptance times the survival of the token before it. Its acceptance is not known yet: that of drafted
tokens lately stands for it.

Means of rounds that are over, so the price depends on no draft under way, and knows no token. A coordinator takes what
it expects of the plan it has chosen (``order_price``), a simulation what it has counted.
"""

from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.price import DraftPrice
from outrider.link.latency import up_s
from outrider.protocols.payload import expected_support
from outrider.protocols.registry import PROTOCOLS, answer_bits
from outrider.selection.situation import Estimate, RoundSituation
from outrider.selection.verifier_load import VerifierLoad, verifier_load

_LEAST_ACCEPTANCE = 0.05  # so that a few rejections do not end drafting for good
_MOST_LOAD = 0.999


@dataclass(frozen=True, slots=True)
class RoundsLately:
    """Means over rounds with a draft."""

    exchange_s: float  # drafting and the link
    sent_tokens: float  # drafted and verified
    committed_tokens: float  # correction or bonus token included
    acceptance: float  # of a token that was verified, given that those before it were accepted


@dataclass(frozen=True, slots=True)
class MarginalDraftCost:
    """What one more token of a draft takes beside the verifier."""

    step_s: float  # on the device, as often as its drafting counts
    link_s: float = 0.0


def draft_price(
    cost_model: CostModel, load: VerifierLoad, lately: RoundsLately, cached_tokens: int, further: MarginalDraftCost
) -> DraftPrice:
    """The price at the present load.

    Args:
        cost_model: predicts the verifier's batches.
        load: of the verifier.
        lately: what rounds were like.
        cached_tokens: of a block, whose KV is only read.
        further: what a token takes.
    """
    blocks, around = max(load.batch_blocks, 1.0), max(lately.sent_tokens, 1.0)
    rows = 1.0 + np.array([lately.sent_tokens, 0.5 * around, 1.5 * around])
    works = blocks * np.stack([rows, rows * (rows + cached_tokens), np.full(3, float(cached_tokens))], axis=1)
    batch_s, fewer_s, more_s = cost_model.predict_works_s(works).tolist()
    if batch_s <= 0.0:
        return DraftPrice()
    row_s, pass_s = max(0.0, more_s - fewer_s) / around, max(load.batch_s, batch_s)
    constant_s, waited = cost_model.predict_s(()), load.queue_s / pass_s
    free = 1.0 - min(verifier_load(waited, 1.0 - constant_s / pass_s), _MOST_LOAD)
    dearer = (1.0 + waited) / free
    round_s = lately.exchange_s + load.queue_s + pass_s + load.fixed_s
    elastic_s = min(1.0, 2.0 * waited) * max(0.0, batch_s - constant_s / max(1.0, waited))
    value = lately.committed_tokens / (round_s + dearer * elastic_s)
    row, step = value * (dearer * row_s + further.link_s), value * further.step_s
    return DraftPrice(min(row, 1.0), min((row + step) / max(lately.acceptance, _LEAST_ACCEPTANCE), 1.0))


def order_price(situation: RoundSituation, chosen: Estimate) -> DraftPrice | None:
    """Of the order for a plan, as its message tells it; None where nobody goes by it."""
    plan, drafter = chosen.plan, situation.drafter
    if plan is None or drafter is None or not drafter.by_price or plan.expansion or not plan.window:
        return None
    params, wire, verifier = situation.params, situation.wire, situation.verifier
    each, drafted = situation.acceptance.chain(PROTOCOLS[plan.protocol].rule(params, wire), plan.window)
    survivals = (each * drafted).cumprod()
    reached = np.concatenate(([1.0], survivals[:-1])) * drafted
    lately = RoundsLately(
        exchange_s=chosen.exchange_s,
        sent_tokens=chosen.sent_tokens,
        committed_tokens=chosen.expected_tokens,
        acceptance=float(survivals.sum() / max(reached.sum(), _LEAST_ACCEPTANCE)),
    )
    link_s = 0.0
    if drafter.csi is not None:
        support = expected_support(params, wire.vocab_size)
        one, whole = (answer_bits(DraftPlan(plan.protocol, tokens), wire, support) for tokens in (1, plan.window + 1))
        link_s = (whole - one) / plan.window * up_s(drafter.csi, 1.0)
    load = verifier.steady or VerifierLoad(verifier.queue_s, verifier.batch_blocks, 0.0, verifier.fixed_s)
    cached_tokens = max(situation.position - 1, 0)
    exact = draft_price(
        verifier.cost_model,
        load,
        lately,
        cached_tokens,
        MarginalDraftCost(drafter.drafting_weight * drafter.step_s, link_s),
    )
    return DraftPrice.at_levels(*exact.levels)

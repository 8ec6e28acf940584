"""Price of one more draft token at the present load, in expected tokens: marginal cost at constant throughput.

The price of a second follows from the throughput. For N generations that all draft alike, with R seconds and E tokens
per round,

    N E = X R,   R = exchange + (1 + w) T + fixed,   T = c / (1 - u)

where X is the throughput of all in tokens/s, w the number of batches that a block waits for, T the duration of a batch,
c its constant part, and u the share of the verifier's time that blocks' work takes
(``outrider.selection.verifier_load``). A token that lengthens drafts by dE, exchanges by dx and batches of the present
size by dT leaves X unchanged if

    dE / E * (R + a (T' - c)) = dx + a dT,   a = (1 + w) / (1 - u)

T' is a batch without the prompts that are computed in it: these are load, but drafts do not change their cost. So a
second of an exchange costs ``E / (R + a (T' - c))`` tokens, and a second of batches ``a`` times that. On an idle
verifier this is the generation's own speed. The busier the verifier, the less a drafting step costs relative to a row:
others' blocks fill the batches while the device computes.

Two corrections, as in ``verifier_load``: batches grow with the arriving work only as far as blocks wait for one another
(a single generation has one block in its batch, however long its drafts). And where blocks wait for more than the
running batch, batches have their largest size, and further work pays their constant part as well.

A token is sent if its survival exceeds the price of its row. Another one is drafted behind it if its expected gain
exceeds the price of a row and a step. The gain is the survival of the token before it, times its own acceptance; that
is not known yet, so the recent mean acceptance of draft tokens stands for it.

Inputs are means over finished rounds, so the price depends on no draft under way. A coordinator takes the expectations
of the plan that it chose (``order_price``), a simulation its own counts.
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

_LEAST_ACCEPTANCE = 0.05  # lower bound, so that a few rejections do not end drafting for good
_MOST_LOAD = 0.999


@dataclass(frozen=True, slots=True)
class RoundsLately:
    """Means over rounds with a draft."""

    exchange_s: float  # drafting and the link
    sent_tokens: float  # drafted and verified
    committed_tokens: float  # correction or bonus token included
    acceptance: float  # P(accepted) of a verified token, given that those before it were accepted


@dataclass(frozen=True, slots=True)
class MarginalDraftCost:
    """Seconds of one more draft token outside the verifier."""

    step_s: float  # on the device
    link_s: float = 0.0


def draft_price(
    cost_model: CostModel, load: VerifierLoad, lately: RoundsLately, cached_tokens: int, further: MarginalDraftCost
) -> DraftPrice:
    """Return the price at the present load.

    ``cached_tokens`` are of a block, whose KV is only read; ``further`` is one more token outside the verifier, in s.
    """
    blocks, around = max(load.batch_blocks, 1.0), max(lately.sent_tokens, 1.0)
    rows = 1.0 + np.array([lately.sent_tokens, 0.5 * around, 1.5 * around])
    works = blocks * np.stack([rows, rows * (rows + cached_tokens), np.full(3, float(cached_tokens))], axis=1)
    batch_s, fewer_s, more_s = cost_model.predict_works_s(works).tolist()
    if batch_s <= 0.0:
        return DraftPrice()
    # dT: slope of the batch between half and one and a half times the present draft length.
    row_s, pass_s = max(0.0, more_s - fewer_s) / around, max(load.batch_s, batch_s)
    constant_s, waited = cost_model.predict_s(()), load.queue_s / pass_s
    free = 1.0 - min(verifier_load(waited, 1.0 - constant_s / pass_s), _MOST_LOAD)
    dearer = (1.0 + waited) / free
    round_s = lately.exchange_s + load.queue_s + pass_s + load.fixed_s
    # T' - c with both corrections: scaled by how busy the verifier is, with less of c where blocks wait for batches.
    elastic_s = min(1.0, 2.0 * waited) * max(0.0, batch_s - constant_s / max(1.0, waited))
    value = lately.committed_tokens / (round_s + dearer * elastic_s)
    row, step = value * (dearer * row_s + further.link_s), value * further.step_s
    return DraftPrice(min(row, 1.0), min((row + step) / max(lately.acceptance, _LEAST_ACCEPTANCE), 1.0))


def order_price(situation: RoundSituation, chosen: Estimate) -> DraftPrice | None:
    """Return the price for the order of a plan, rounded to the message's levels; None if the device uses none."""
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
        MarginalDraftCost(drafter.step_s, link_s),
    )
    return DraftPrice.at_levels(*exact.levels)

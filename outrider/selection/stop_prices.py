"""What one more token of a draft costs now, in expected tokens: the price that travels in an order.

The value of a second is what rounds bring in one lately. As in ``cost_aware`` it is the generation's own second on an
idle verifier, and the verifier's on a saturated one:

    cost of a round  C   = (1 - load) * (exchange + (1 + waited) * T + fixed) + load * T
    value            v   = committed tokens of a round / C
    a row            v * ((1 - load) * ((1 + waited) * dT + link) + load * dT)
    a step           v * (1 - load) * step

``T`` is a batch of the present size whose blocks all have the rows they have had lately, and ``dT`` what one row more
in each of them adds to it: all generations stop alike. What a device computes while others' blocks fill the batches
costs nobody anything on a saturated verifier; there rows alone have a price.

A token is sent for the price of its row. Behind it another one is drafted if that should bring a row and a step, and it
brings its own acceptance times the survival of the token before it. Its acceptance is not known yet: that of drafted
tokens lately stands for it.

Means of rounds that are over, so the price depends on no draft under way, and knows no token.
"""

from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.drafting.cost_aware import DraftPrice
from outrider.selection.load import verifier_load

_LEAST_ACCEPTANCE = 0.05  # so that a few rejections do not end drafting for good


@dataclass(frozen=True, slots=True)
class VerifierLoad:
    """The verifier as it was lately."""

    queue_s: float  # a block waited before its batch began
    batch_blocks: float  # blocks per batch, >= 1
    fixed_s: float  # seconds per round beyond draft, link, queue and forward pass


@dataclass(frozen=True, slots=True)
class RoundsLately:
    """Means over rounds with a draft."""

    exchange_s: float  # drafting and the link
    sent_tokens: float  # drafted and verified
    committed_tokens: float  # correction or bonus token included
    acceptance: float  # of a token that was verified, given that those before it were accepted


@dataclass(frozen=True, slots=True)
class Further:
    """What one more token of a draft takes beside the verifier."""

    step_s: float  # on the device
    link_s: float = 0.0


def draft_price(
    cost_model: CostModel, load: VerifierLoad, lately: RoundsLately, cached_tokens: int, further: Further
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
    row_s = max(0.0, more_s - fewer_s) / around
    waited = load.queue_s / batch_s
    share = verifier_load(waited, 1.0 - cost_model.predict_s(()) / batch_s)
    own = 1.0 - share
    cost_s = own * (lately.exchange_s + (1.0 + waited) * batch_s + load.fixed_s) + share * batch_s
    value = lately.committed_tokens / cost_s
    row = value * (own * ((1.0 + waited) * row_s + further.link_s) + share * row_s)
    step = value * own * further.step_s
    return DraftPrice(min(row, 1.0), min((row + step) / max(lately.acceptance, _LEAST_ACCEPTANCE), 1.0))

"""Greedy verification on numbers small enough to read."""

import torch

from outrider.sampling import RowGroup
from outrider.types import SamplingParams
from outrider.verification.greedy import ChainDecision, verify_chains

GREEDY = SamplingParams(temperature=0.0)
LOGITS = torch.tensor([[0.0, 1.0, 0.0], [2.0, 1.0, 2.0], [0.0, 0.0, 5.0]])  # argmax 1, 0 (tied with 2), 2


def decide(draft: tuple[int, ...], rows: int, dtype: torch.dtype = torch.float32) -> ChainDecision:
    group = RowGroup(GREEDY, 7, None, draft, rows)
    (decision,) = verify_chains(LOGITS[:rows].to(dtype), [group], [draft])
    return decision


def test_all_accepted_and_the_bonus_token() -> None:
    assert decide((1, 0), 3) == ChainDecision(2, 2)


def test_all_accepted_without_a_bonus_row() -> None:
    assert decide((1, 0), 2) == ChainDecision(2, None)


def test_the_correction_is_the_argmax_where_the_draft_differs() -> None:
    assert decide((2, 0), 3) == ChainDecision(0, 1)
    assert decide((1, 1), 2) == ChainDecision(1, 0)


def test_a_draft_of_a_tied_token_with_a_higher_id_is_rejected() -> None:
    assert decide((1, 2), 3) == ChainDecision(1, 0)
    assert decide((1, 2), 3, torch.bfloat16) == ChainDecision(1, 0)


def test_greedy_and_sampled_chains_share_a_batch() -> None:
    sampled = RowGroup(SamplingParams(seed=4), 3, None, (0,), 2)
    greedy = RowGroup(GREEDY, 7, None, (1, 0), 3)
    together = verify_chains(torch.cat([LOGITS[:2], LOGITS]), [sampled, greedy], [(0,), (1, 0)])
    assert together == [*verify_chains(LOGITS[:2], [sampled], [(0,)]), ChainDecision(2, 2)]

"""A block of which less is verified: tokens and what was sent of them are cut alike."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.exchanged import Deferral, DenseDraft, DraftDistribution, ScalarDraft, SparseDraft
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import AcceptanceRule, Block

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
IDS = tuple(np.array([row, 3]) for row in range(3))
SENT = [
    (ScalarDraft(np.array([7, 8, 9]), 8), ScalarDraft(np.array([7, 8]), 8)),
    (SparseDraft(IDS, tuple(ROWS[:, :2])), SparseDraft(IDS[:2], tuple(ROWS[:2, :2]))),
    (DenseDraft(ROWS), DenseDraft(ROWS[:2])),
    (None, None),
]
BLOCK = Block("g", 4, 10, 77, (5,), (1, 2, 3), rule=AcceptanceRule.RATIO, deferral=Deferral(), hidden=ROWS)


@pytest.mark.parametrize(("sent", "front"), SENT, ids=["scalar", "sparse", "dense", "nothing"])
def test_what_was_sent_is_cut_with_the_tokens(sent: DraftDistribution, front: DraftDistribution) -> None:
    block = replace(BLOCK, distribution=sent)
    assert trimmed(block, 2) == replace(block, draft=(1, 2), distribution=front, hidden=ROWS[:2])
    assert trimmed(block, 3) is block
    assert trimmed(block, 9) is block


@pytest.mark.parametrize(
    ("rule", "alone"),
    [
        (AcceptanceRule.RATIO, AcceptanceRule.SHARED_NOISE),
        (AcceptanceRule.SHARED_NOISE, AcceptanceRule.SHARED_NOISE),
        (AcceptanceRule.GREEDY, AcceptanceRule.GREEDY),
        (AcceptanceRule.SEMANTIC, AcceptanceRule.GREEDY),
    ],
)
def test_without_any_it_is_a_block_that_nobody_drafted_for(rule: AcceptanceRule, alone: AcceptanceRule) -> None:
    """A correction drawn elsewhere stays; there is no rejection left to defer."""
    block = replace(BLOCK, rule=rule, distribution=DenseDraft(ROWS))
    assert trimmed(block, 0) == Block("g", 4, 10, 77, (5,), rule=alone)


def test_a_tree_has_no_front() -> None:
    with pytest.raises(ValueError, match="needs a chain"):
        trimmed(replace(BLOCK, parents=(-1, -1, 0)), 1)
    assert trimmed(replace(BLOCK, parents=(-1, -1, 0)), 0) == trimmed(BLOCK, 0)

"""What a device may not have drawn, though it can be read."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import (
    Candidates,
    CorrectionSource,
    DenseDraft,
    DraftDistribution,
    FloatRow,
    ScalarDraft,
    SparseDraft,
    TargetRow,
)
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.session.answers import draft_fault

VOCAB = 97
ASKED = DraftRequest("g", 3, 10, (5, 6), 0, DraftPlan("token_ids", 4))
GOOD = Draft("g", 3, 12, (1, 0, 96))
GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams()


def test_a_chain_of_ids_cannot_be_wrong() -> None:
    assert draft_fault(GOOD, ASKED, SAMPLED) is None


@pytest.mark.parametrize(
    "source",
    [
        Candidates(np.array([3, 7, 3]), np.full(3, 0.5, dtype=np.float32)),
        TargetRow(np.array([3, 5, 7]), np.array([0.5, 0.0, 0.5], dtype=np.float32)),
        TargetRow(None, np.eye(VOCAB, dtype=np.float32)[3] + np.eye(VOCAB, dtype=np.float32)[7]),
    ],
    ids=["candidates", "sparse row", "dense row"],
)
def test_a_correction_is_one_the_target_could_have_said(source: CorrectionSource) -> None:
    request = replace(ASKED, correction=source)
    for token_id in (3, 7):
        assert draft_fault(replace(GOOD, correction=token_id), request, SAMPLED) is None
    for token_id in (5, 0):
        fault = draft_fault(replace(GOOD, correction=token_id), request, SAMPLED)
        assert fault == f"needs a correction that the target can draw, found {token_id}"


def dense(changed: int, logit: float) -> DenseDraft:
    """Rows for the tokens 1, 0, 96; one logit of the last is changed."""
    rows = np.zeros((3, VOCAB), dtype=np.float32)
    rows[2, changed] = logit
    return DenseDraft(rows)


def logits(*values: float) -> FloatRow:
    return np.array(values, dtype=np.float32)


SPARSE_ROWS = (np.array([1, 5]), np.array([0]), np.array([95, 96]))
SENT: dict[str, tuple[ProtocolName, DraftDistribution, int | None]] = {
    "dense": ("dsd", dense(0, 0.0), None),
    "dense, truncated": ("dsd", dense(3, -np.inf), None),
    "dense with an underflow": ("dsd", dense(3, 1e3), 96),
    "scalars": ("dssd", ScalarDraft(np.array([1, 256, 7]), 8), None),
    "sparse": ("tslt", SparseDraft(SPARSE_ROWS, (logits(0, -3), logits(0), logits(-1, 0))), None),
    "sparse with an underflow": ("tslt", SparseDraft(SPARSE_ROWS, (logits(-1e3, 0), logits(0), logits(-1, 0))), 1),
}


@pytest.mark.parametrize(("protocol", "sent", "impossible"), SENT.values(), ids=SENT.keys())
def test_a_token_has_some_probability_in_its_row(
    protocol: ProtocolName, sent: DraftDistribution, impossible: int | None
) -> None:
    request = replace(ASKED, plan=DraftPlan(protocol, 4))
    fault = draft_fault(replace(GOOD, distribution=sent), request, SAMPLED)
    needed = f"needs tokens drawn from their rows, found {impossible} without probability"
    assert fault == (None if impossible is None else needed)


def test_only_a_greedy_tree_is_drawn_from_nothing() -> None:
    request = replace(ASKED, plan=DraftPlan("tslt_tree", 2, (2, 2)))
    draft = replace(GOOD, token_ids=(1, 5, 0, 95, 96), parents=(-1, -1, 0, 1, 1))
    rows = SparseDraft(SPARSE_ROWS, (logits(0, -3), logits(0), logits(-1, 0)))
    assert draft_fault(replace(draft, distribution=rows), request, SAMPLED) is None
    assert draft_fault(draft, request, GREEDY) is None
    assert draft_fault(draft, request, SAMPLED) == "needs a SparseDraft, found none"
    unlikely = SparseDraft(SPARSE_ROWS, (logits(0, -3), logits(0), logits(-1e3, 0)))
    fault = draft_fault(replace(draft, distribution=unlikely), request, SAMPLED)
    assert fault == "needs tokens drawn from their rows, found 95 without probability"

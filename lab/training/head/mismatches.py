"""Where a drafter differs from its target along the target's own answer, and what both states were there.

Token n of an answer is predicted by row n of those that begin with the prompt's last token: as in a block, of which
row n predicts ``draft[n]``. So ``verification.semantic.mismatches`` finds the rows for training and for serving.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.training.head.paged_texts import PagedText, PagedTexts, TextRows
from lab.training.head.pair import Pair
from outrider.contracts.exchanged import ArrayData, FloatField, FloatRow, WireFormat
from outrider.protocols.hidden_states import rounded_states
from outrider.verification.semantic import mismatches

Rounding = Callable[[FloatRow], FloatRow]  # [M, d] drafter states, as they are once they have crossed the link


def as_computed(hidden: FloatRow) -> FloatRow:
    return hidden


def as_sent(field: FloatField) -> Rounding:
    """To a field, as in service."""

    def rounded(hidden: FloatRow) -> FloatRow:
        return rounded_states(hidden, WireFormat(vocab_size=2, hidden_field=field, hidden_width=hidden.shape[1]))

    return rounded


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place of an answer.

    Attributes:
        index: among the mismatches of its answer, from 0.
        offset: of the token in the answer, which row ``offset`` predicts.
        target_id: the answer's token there.
        draft_id: the drafter's argmax behind the same tokens.
    """

    index: int
    offset: int
    target_id: int
    draft_id: int


@dataclass(frozen=True, slots=True, eq=False)
class HiddenPair(ArrayData):
    """``[M, d]`` float32 each: final-norm states at the rows that predict M mismatches."""

    drafter: FloatRow
    target: FloatRow


def along(texts: PagedTexts, prompt_ids: Sequence[int], answer_ids: Sequence[int], *, want_hidden: bool) -> TextRows:
    """The rows that predict each token of an answer behind the true tokens before it; nothing stays resident."""
    text = PagedText([*prompt_ids, *answer_ids[:-1]])
    rows = texts.run([text], [len(answer_ids)], want_hidden=want_hidden)
    texts.release(text)
    return rows


def find_mismatches(drafted: Sequence[int], answer_ids: Sequence[int]) -> tuple[Mismatch, ...]:
    """Of an answer and the drafter's argmax at each of its rows."""
    found = mismatches(answer_ids, drafted)
    return tuple(Mismatch(index, at, answer_ids[at], drafted[at]) for index, at in enumerate(found))


def hidden_at(
    pair: Pair,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    found: Sequence[Mismatch],
    rounding: Rounding = as_computed,
) -> HiddenPair:
    """Both states at some mismatches of an answer."""
    offsets = [mismatch.offset for mismatch in found]
    drafter, target = (
        along(texts, prompt_ids, answer_ids, want_hidden=True).hidden_of(0, offsets)
        for texts in (pair.drafter, pair.target)
    )
    return HiddenPair(np.asarray(rounding(drafter), np.float32), target)

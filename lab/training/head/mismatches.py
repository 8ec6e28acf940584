"""Mismatches of a drafter along its target's own answer, and both models' states there.

Token n of an answer is predicted by row n, counted from the row of the prompt's last token, as in a block, where row n
predicts ``draft[n]``. So ``verification.semantic.mismatches`` finds the rows both in training and in service.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.training.head.paged_texts import PagedText, PagedTexts, TextRows
from lab.training.head.pair import Pair
from outrider.contracts.exchanged import ArrayData, FloatField, FloatRow, WireFormat
from outrider.protocols.hidden_states import rounded_states
from outrider.verification.semantic import mismatches

Rounding = Callable[[FloatRow], FloatRow]  # [M, d] drafter states to what the link's encoding leaves of them


def as_computed(hidden: FloatRow) -> FloatRow:
    return hidden


def as_sent(field: FloatField) -> Rounding:
    """Round as the wire field does in service."""

    def rounded(hidden: FloatRow) -> FloatRow:
        return rounded_states(hidden, WireFormat(vocab_size=2, hidden_field=field, hidden_width=hidden.shape[1]))

    return rounded


@dataclass(frozen=True, slots=True)
class Mismatch:
    index: int  # among the mismatches of its answer, from 0
    offset: int  # of the token in the answer; row ``offset`` predicts it
    target_id: int  # the answer's token there
    draft_id: int  # the drafter's argmax behind the same tokens


@dataclass(frozen=True, slots=True, eq=False)
class HiddenPair(ArrayData):
    """``[M, d]`` float32 each: final-norm states at the rows that predict M mismatches."""

    drafter: FloatRow
    target: FloatRow


def along(texts: PagedTexts, prompt_ids: Sequence[int], answer_ids: Sequence[int], *, want_hidden: bool) -> TextRows:
    """Compute the rows that predict each token of an answer behind its true prefix; no KV stays resident."""
    text = PagedText([*prompt_ids, *answer_ids[:-1]])
    rows = texts.run([text], [len(answer_ids)], want_hidden=want_hidden)
    texts.release(text)
    return rows


def find_mismatches(drafted: Sequence[int], answer_ids: Sequence[int]) -> tuple[Mismatch, ...]:
    """Mismatches between an answer and the drafter's argmax at each of its rows."""
    found = mismatches(answer_ids, drafted)
    return tuple(Mismatch(index, at, answer_ids[at], drafted[at]) for index, at in enumerate(found))


def hidden_at(
    pair: Pair,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    found: Sequence[Mismatch],
    rounding: Rounding = as_computed,
) -> HiddenPair:
    """Both models' states at the given mismatches of an answer."""
    offsets = [mismatch.offset for mismatch in found]
    drafter, target = (
        along(texts, prompt_ids, answer_ids, want_hidden=True).hidden_of(0, offsets)
        for texts in (pair.drafter, pair.target)
    )
    return HiddenPair(np.asarray(rounding(drafter), np.float32), target)

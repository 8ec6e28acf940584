"""Draft distributions and correction sources as numbers that both ends of the link compute with.

Both ends compute with exactly these (``outrider.sampling.distributions``); ``outrider.wire`` encodes and decodes them.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.versions import MESSAGES_BEFORE_RANGES, VERSIONS

FloatRow = npt.NDArray[np.float32]

IntRow = npt.NDArray[np.int64]


class ArrayData:
    """Equality by value for frozen dataclasses that hold arrays."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]  # every subclass is a dataclass
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


@dataclass(frozen=True, slots=True, eq=False)
class ScalarDraft(ArrayData):
    """The drafted tokens' own probabilities in fixed point, and nothing else (DSSD).

    Token i was drawn with probability ``numerators[i] / 2**bits``, exactly.
    """

    numerators: IntRow  # ``[K]`` int64, 1 .. 2**bits
    bits: int  # width of a numerator on the link


@dataclass(frozen=True, slots=True, eq=False)
class SparseDraft(ArrayData):
    """Truncated draft distributions (TSLT eq. 12-14): those that the drafter sampled from.

    Row r is ``outrider.sampling.distributions.softmax(logits[r])`` over ``token_ids[r]``. A chain has one row per draft
    token. A tree has one per node that has children: the prefix first, then by index.
    """

    token_ids: tuple[IntRow, ...]  # rows of ``[k_r]`` int64, strictly ascending
    logits: tuple[FloatRow, ...]  # rows of ``[k_r]`` float32, as decoded from the message; finite


@dataclass(frozen=True, slots=True, eq=False)
class DenseDraft(ArrayData):
    logits: FloatRow  # ``[K, vocab]`` float32, as decoded from the message; -inf for removed tokens


DraftDistribution = ScalarDraft | SparseDraft | DenseDraft | None


class FloatField(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # one fp32 scale per vector


@dataclass(frozen=True, slots=True)
class WireFormat:
    """Encoding of the messages between coordinator and drafter. Both ends of a generation use the same.

    Attributes:
        logit_field: of draft logits (dsd, tslt, tslt_tree). Every field is lossless: drafters round, then sample.
        scalar_bits: of a drafted token's fixed-point probability (dssd, dssd_candidates), 8..32. Every width is
            lossless: the drafter samples from multiples of ``2**-scalar_bits``.
        row_field: of the target's probabilities (dssd, dssd_candidates): fp32, fp16 or bf16; only fp32 is lossless.
        hidden_field: of a drafter's hidden states (wisv_full, wisv_selective), int8 with a scale for each 32 numbers.
    """

    vocab_size: int  # token ids take ``ceil(log2(vocab_size))`` bits
    logit_field: FloatField = FloatField.FP16
    scalar_bits: int = 24
    row_field: FloatField = FloatField.FP32
    top_k: int = 32  # draft tokens that tslt and tslt_tree keep at each position; 0 keeps all
    top_rho: float = 1.0  # of these the smallest set whose mass reaches it is kept (TSLT eq. 14, corrected)
    distinct_siblings: bool = True  # tslt_tree draws a node's children without replacement
    hidden_field: FloatField = FloatField.FP16
    hidden_width: int = 0  # numbers in a hidden state; 0 where no judge uses them
    version: int = VERSIONS.messages.newest  # of a coordinator's messages; drafters answer in an order's

    def __setstate__(self, state: list[Any]) -> None:
        """Read what was pickled, also by a release that had no ``version``."""
        names = [field.name for field in fields(self)]
        for name, value in zip(names, (*state, MESSAGES_BEFORE_RANGES.newest)[: len(names)], strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Deferral:
    """The device draws the correction itself (DSSD): the outcome holds what it draws from instead of a token.

    The acceptance test then uses the target's probabilities as rounded by ``row_field``, since those are what is sent.
    """

    row_field: FloatField = FloatField.FP32  # of the target row's probabilities
    candidates: int = 0  # draws from the target to send instead of the row; 0 sends the row


@dataclass(frozen=True, slots=True, eq=False)
class TargetRow(ArrayData):
    """The target's distribution at the position of a deferred correction, as sent over the link."""

    # ``[n]`` int64 strictly ascending, the tokens of probability above 0; None: the whole vocabulary
    token_ids: IntRow | None
    probs: FloatRow  # ``[n]`` or ``[vocab]`` float32, rounded by the field; not renormalised


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(ArrayData):
    """Independent draws from the target at the position of a deferred correction, in order."""

    token_ids: IntRow  # ``[m]`` int64, repetitions included
    probs: FloatRow  # ``[m]`` float32, the target's probability of each


CorrectionSource = TargetRow | Candidates

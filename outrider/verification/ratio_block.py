"""Input of the ratio rule, checked at construction, and deferral of a correction to the device."""

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from outrider.contracts.errors import ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import (
    Deferral,
    DenseDraft,
    DraftDistribution,
    FloatField,
    FloatRow,
    ScalarDraft,
    SparseDraft,
)
from outrider.contracts.verifying import Block
from outrider.sampling.distributions import Probs
from outrider.sampling.noise import Purpose, uniforms
from outrider.sampling.rounding import round_floats
from outrider.verification.correction import correction_source
from outrider.verification.decision import BlockDecision, DraftShape, shape_of
from outrider.verification.draft_rows import DraftRows
from outrider.verification.tree import Halt, walk


@dataclass(frozen=True, slots=True)
class RatioBlock:
    """A block that the ratio rule can decide; construction checks it. Fields as in ``contracts.verifying.Block``."""

    draft: tuple[int, ...]
    parents: tuple[int, ...] | None
    distribution: DraftDistribution
    distinct: bool  # whether the siblings of a tree were drawn without replacement
    bonus: bool
    deferral: Deferral | None
    seed: int  # the request's
    position: int  # absolute position of the token that row 0 predicts
    shape: DraftShape = field(init=False)  # of the draft

    def __post_init__(self) -> None:
        """Check that the rule can decide the block.

        Raises:
            UnsupportedBlockError: the draft distribution does not suffice for what the block asks; or it defers a
                tree's correction, or wants an int8 target row.
            ShapeError: the distribution has other rows than the draft; or ``parents`` is not a tree.
        """
        if (found := _undecidable(self)) is not None:
            raise UnsupportedBlockError(f"the ratio rule found {found}")
        nodes, sent = len(self.draft), self.distribution
        object.__setattr__(self, "shape", shape_of(nodes, self.parents))
        if sent is not None and nodes > 0:
            rows = sum(map(bool, self.shape.children)) if isinstance(sent, SparseDraft) else nodes
            found_rows = len(sent.numerators if isinstance(sent, ScalarDraft) else sent.logits)
            if found_rows != rows:
                raise ShapeError(f"a draft of {nodes} tokens needs {rows} draft rows, found {found_rows}")


def _undecidable(block: RatioBlock) -> str | None:
    """Return why the rule cannot decide a block of this form; None if it can."""
    sent, deferral, drafted, tree = block.distribution, block.deferral, bool(block.draft), block.parents is not None
    for wrong, found in (
        (drafted and sent is None, "no draft distribution; the rule needs what the draft was sampled from"),
        (tree and isinstance(sent, ScalarDraft | DenseDraft), "a tree without sparse rows; send one for each parent"),
        (
            drafted and isinstance(sent, ScalarDraft) and deferral is None,
            "scalars without a deferral; the residual of a rejection is known to the device alone",
        ),
        (tree and deferral is not None, "a tree with a deferral; corrections can be deferred for chains only"),
        (
            deferral is not None and deferral.row_field is FloatField.INT8,
            "an int8 target row; send it as fp32, fp16 or bf16",
        ),
    ):
        if wrong:
            return found
    return None


def rows_of(block: RatioBlock | Block) -> int:
    """Return the number of target rows that decide a block of K draft tokens.

    K + 1 for a tree, for a chain that wants a bonus token, and for a block without draft that asks for a correction's
    row; else K, as a deferred correction needs no row besides those of the draft. The same under every rule.
    """
    nodes = len(block.draft)
    asks_row = nodes == 0 and block.deferral is not None
    return nodes + (block.bonus or block.parents is not None or asks_row)


def rounded(values: FloatRow, deferral: Deferral | None) -> FloatRow:
    """Round target probabilities to what is sent, if the correction is deferred: both ends compute with the same."""
    return values if deferral is None else round_floats(values, deferral.row_field)


def defer(block: RatioBlock, deferral: Deferral, path: tuple[int, ...], target_row: FloatRow) -> BlockDecision:
    """Return what the device draws the correction from; if the row has one token only, that token as decided."""
    row = rounded(target_row, deferral)
    possible = np.flatnonzero(row)
    if len(possible) == 1:
        return BlockDecision(path, int(possible[0]))
    return BlockDecision(path, None, correction_source(row, deferral, block.seed, block.position + len(path)))


def steps_of(
    block: RatioBlock, first_probs: FloatRow, draft_rows: DraftRows, *, deferred: bool
) -> Generator[int, FloatRow | Probs, Halt]:
    """Run ``tree.walk`` along the block with the noise of its tests; ``first_probs`` are rounded already."""

    def accept_uniforms(depth: int, count: int) -> Probs:
        return uniforms(block.seed, block.position + depth, Purpose.ACCEPT, count)

    return walk(
        block.draft,
        block.shape.children,
        first_probs.tolist(),
        draft_rows,
        accept_uniforms,
        distinct=block.distinct,
        deferred=deferred,
    )


def residual_uniform(block: RatioBlock, halt: Halt) -> float:
    return float(uniforms(block.seed, block.position + len(halt.path), Purpose.RESIDUAL, 1)[0])

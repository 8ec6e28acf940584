"""Needs of a block, and its contribution to a forward pass: slots, logits rows, segments.

Row ``s`` is the logits after the token in slot ``s``. A block with ``c`` committed and forced tokens, in slots
``0 .. c - 1``, is decided by its *own rows*: row ``c - 1``, then those of its draft tokens. If row ``c - 1`` is kept
from an earlier pass (``kept_rows``), it is the block's *head*, and the pass computes only the others. Hidden states are
not kept, so a block that wants them has its head computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from outrider.contracts.verifying import Block, Outcome, Unfinished
from outrider.engines.segments import Move, Segment
from outrider.engines.verifier.block_validator import CheckedBlock
from outrider.engines.verifier.generation import HeldGeneration
from outrider.engines.verifier.token_scores import ScoredRows, TokenScores, score
from outrider.engines.verifier.tree_branches import Branches, ForkedPath
from outrider.engines.verifier.two_steps import wants_hidden
from outrider.sampling.device_tensors import Readback
from outrider.verification.ratio_block import rows_of


@dataclass(frozen=True, slots=True)
class Need:
    """Slots and rows that a block needs, no matter which of its KV is resident."""

    committed: Sequence[int]  # the sequence's own list, not a copy: a context may be long
    forced_and_draft: Sequence[int]  # forced and draft tokens, in the slots after those
    length: int  # slots that need KV, from the first one on; fewer than the block has, where its end is not needed
    first_row: int  # first row needed; its slot is computed even if its KV is resident
    own_rows: int  # the last rows, which decide the block; ``head`` is not counted
    head: Tensor | None  # ``[vocab]`` logits of row ``c - 1`` if they are kept and the block needs them

    def token_ids(self, start: int, stop: int) -> list[int]:
        own = len(self.committed)
        return [
            *self.committed[start : min(stop, own)],
            *self.forced_and_draft[max(0, start - own) : max(0, stop - own)],
        ]


def need_of(generation: HeldGeneration, block: Block, kept_row: Tensor | None) -> Need:
    """Return a block's need; ``kept_row`` is the logits row after the committed tokens, if it is kept."""
    context = len(generation.token_ids) + len(block.forced)
    rows = rows_of(block)
    head = kept_row if rows and not block.forced and not wants_hidden(block) else None
    own_rows = rows - (head is not None)
    if own_rows:
        length = context + (len(block.draft) if block.parents is not None else min(rows - 1, len(block.draft)))
    elif head is not None:
        length = 0  # the kept row decides the block alone
    else:
        length = context - 1  # only KV is wanted; the last token's is computed with the next block
    # Scores of a prompt or of forced tokens need earlier rows, so these may move the first row forward.
    first_row = length - own_rows if own_rows else context
    first_row = min([first_row, *(scores.next_row for scores in generation.open_scores)])
    forced_and_draft = (*block.forced, *block.draft)
    return Need(generation.token_ids, forced_and_draft, length, first_row, own_rows, head)


@dataclass(frozen=True, slots=True)
class Work:
    index: int  # of the block in the batch
    block: Block  # as it was asked
    checked: CheckedBlock
    generation: HeldGeneration
    own_rows: int  # the last of its logits rows, as ``Need.own_rows``; 0 while it is unfinished
    head: Tensor | None  # known row before its own rows; None while it is unfinished
    segment: Segment | None  # None: nothing left to compute
    scored: tuple[tuple[TokenScores, range], ...]  # positions whose logits score tokens
    computed_tokens: int  # slots computed after the pass, each node of a tree in its own
    remaining_tokens: int  # slots still to compute after it; 0: the pass decides the block
    forked: tuple[ForkedPath, ...] = ()  # the tree's paths but the first, which is in ``segment``

    @property
    def branches(self) -> Branches | None:
        """Paths of a tree that this pass computes path by path; None otherwise."""
        return self.checked.branches if self.own_rows else None

    @property
    def segments(self) -> list[Segment]:
        own = [] if self.segment is None else [self.segment]
        return [*own, *(path.segment for path in self.forked)] if self.forked else own

    @property
    def logit_rows(self) -> int:
        own = 0 if self.segment is None else self.segment.logit_rows
        return own + sum(path.segment.logit_rows for path in self.forked) if self.forked else own

    @property
    def kv_tokens(self) -> int:
        """Positions with KV in the sequence's own blocks after the pass."""
        return self.computed_tokens if self.branches is None else self.branches.own_positions()

    @property
    def prefix_tokens(self) -> int:
        """Number of slots it computes before those of its own rows."""
        return 0 if self.segment is None else self.computed_tokens - self.segment.start - self.own_rows

    def go_on(self) -> Outcome:
        """Share the KV of a block that needs further passes, and say how much is left of it."""
        generation, block = self.generation, self.block
        if generation.forced_scores.impossible:
            return generation.refuse_correction(block)
        known = [*generation.token_ids, *block.forced] if block.forced else generation.token_ids
        # Full blocks of the prefix are shared at once, before the block is decided.
        generation.kv.publish(known, self.computed_tokens)
        return Unfinished(block.generation, block.round, self.remaining_tokens)

    def follow_branch(self, path: Sequence[int]) -> None:
        """Adopt the KV blocks of the branch with the accepted path, if that is not the sequence's own."""
        if self.branches is not None and (holding := self.branches.path_holding(path)):
            chosen = self.forked[holding - 1]
            self.generation.kv.adopt(self.branches.prefix_length, chosen.private, chosen.segment.stop)

    def move(self, path: Sequence[int]) -> Move | None:
        """Return the KV copy that brings a masked tree's accepted path to its positions; None if it is there."""
        sources, targets = list(path), list(range(len(path)))
        if sources == targets:
            return None
        base = self.checked.position
        return Move(self.generation.kv.blocks, [base + node for node in sources], [base + depth for depth in targets])


def rows_in_order(works: Sequence[Work]) -> list[int] | None:
    """Return the order of a pass's rows by ``works``, a tree's by node index; None if they are in that order."""
    if not any(work.forked for work in works):
        return None
    order: list[int] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        nodes = [] if work.branches is None else work.branches.row_order()
        first_node = end - len(nodes)
        order += [*range(end - work.logit_rows, first_node), *(first_node + row for row in nodes)]
    return order


def score_rows(logits: Tensor, works: Sequence[Work], readback: Readback) -> Callable[[], None]:
    """Score prompts and forced tokens whose rows (``logits``) this pass has computed; see ``token_scores.score``."""
    if not any(work.scored for work in works):
        return lambda: None
    scored: list[ScoredRows] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        shift = end - work.computed_tokens  # from a position to its row: the block's last row is of its last position
        scored += [ScoredRows(scores, rows.start + shift, len(rows)) for scores, rows in work.scored]
    return score(logits, scored, readback)

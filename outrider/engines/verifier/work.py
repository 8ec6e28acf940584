"""What a block needs and contributes to one forward pass.

Row ``s`` stands for the logits behind the token in slot ``s``. A block with committed and forced tokens in slots
``0 .. c - 1`` is decided by its *own rows*: row ``c - 1``, then those of its draft tokens. Row ``c - 1`` may be known
from before (``kept_rows``); then it is the block's *head* and the pass computes only the others. Only logits are kept:
a block that wants hidden states has its head computed again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from outrider.contracts.verifying import Block
from outrider.engines.forward_model import Move, Segment
from outrider.engines.verifier.block_validator import CheckedBlock
from outrider.engines.verifier.generation import HeldGeneration
from outrider.engines.verifier.token_scores import ScoredRows, TokenScores, score
from outrider.engines.verifier.tree_branches import Branches, ForkedPath
from outrider.engines.verifier.two_steps import wants_hidden
from outrider.sampling.device_tensors import Readback
from outrider.verification.ratio_block import rows_of


@dataclass(frozen=True, slots=True)
class Need:
    """What has to be computed for a block, whatever of it is resident."""

    committed: Sequence[int]  # the sequence's own tokens, not copied: a context may be long
    behind: Sequence[int]  # the block's, in the slots behind them
    length: int  # slots that need KV, from the first one on; the block may name more
    first_row: int  # the first row needed: its slot is computed even if its KV exists already
    own_rows: int  # the last rows, which decide the block, ``head`` not counted
    head: Tensor | None  # ``[vocab]`` logits of row ``c - 1`` if they are kept and the block needs them

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Of the slots ``start .. stop - 1``."""
        own = len(self.committed)
        return [*self.committed[start : min(stop, own)], *self.behind[max(0, start - own) : max(0, stop - own)]]


def need_of(generation: HeldGeneration, block: Block, kept_row: Tensor | None) -> Need:
    """What a block needs; ``kept_row`` is the logits row behind the committed tokens, if it is still known."""
    context = len(generation.token_ids) + len(block.forced)
    rows = rows_of(block)
    head = kept_row if rows and not block.forced and not wants_hidden(block) else None
    own_rows = rows - (head is not None)
    if own_rows:
        length = context + (len(block.draft) if block.parents is not None else min(rows - 1, len(block.draft)))
    elif head is not None:
        length = 0  # all is known
    else:
        length = context - 1  # only KV to bring up to date, for which the last token is of no use yet
    first_row = length - own_rows if own_rows else context
    first_row = min([first_row, *(scores.next_row for scores in generation.open_scores)])
    behind = (*block.forced, *block.draft)
    return Need(generation.token_ids, behind, length, first_row, own_rows, head)


@dataclass(frozen=True, slots=True)
class Work:
    """What one block contributes to this forward pass."""

    index: int  # of the block in the batch
    block: Block  # as it was asked
    checked: CheckedBlock
    generation: HeldGeneration
    own_rows: int  # the last of its logits rows, as ``Need.own_rows``; 0 while it is unfinished
    head: Tensor | None  # a row before these that is known already; None while it is unfinished
    segment: Segment | None  # None: nothing left to compute
    scored: tuple[tuple[TokenScores, range], ...]  # positions whose logits score tokens
    computed_tokens: int  # slots computed after the pass, each node of a tree in its own
    remaining_tokens: int  # slots still to compute after it; 0 decides the block
    forked: tuple[ForkedPath, ...] = ()  # its tree's paths but the first, which is in ``segment``

    @property
    def branches(self) -> Branches | None:
        """Of a tree that this pass computes path by path."""
        return self.checked.branches if self.own_rows else None

    @property
    def segments(self) -> list[Segment]:
        own = [] if self.segment is None else [self.segment]
        return [*own, *(path.segment for path in self.forked)] if self.forked else own

    @property
    def logit_rows(self) -> int:
        """Logits rows the pass returns for this block."""
        own = 0 if self.segment is None else self.segment.logit_rows
        return own + sum(path.segment.logit_rows for path in self.forked) if self.forked else own

    @property
    def kv_tokens(self) -> int:
        """Positions with KV in the sequence's own blocks after the pass."""
        return self.computed_tokens if self.branches is None else self.branches.own_positions()

    @property
    def prefix_tokens(self) -> int:
        """Slots it computes before those of its own rows."""
        return 0 if self.segment is None else self.computed_tokens - self.segment.start - self.own_rows

    def follow_branch(self, path: Sequence[int]) -> None:
        """Go on with the branch that carries an accepted path, if it is not the sequence's own."""
        if self.branches is not None and (carrier := self.branches.carrier(path)):
            chosen = self.forked[carrier - 1]
            self.generation.kv.adopt(self.branches.length, chosen.private, chosen.segment.stop)

    def move(self, path: Sequence[int]) -> Move | None:
        """What brings a masked tree's accepted path to the slots of its positions; None if it lies there already."""
        sources, targets = list(path), list(range(len(path)))
        if sources == targets:
            return None
        base = self.checked.position
        return Move(self.generation.kv.blocks, [base + node for node in sources], [base + depth for depth in targets])


def rows_in_order(works: Sequence[Work]) -> list[int] | None:
    """Where a pass has the rows of ``works`` in turn, a tree's in the order of its nodes; None: as they are."""
    if not any(work.forked for work in works):
        return None
    order: list[int] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        nodes = [] if work.branches is None else work.branches.row_order()
        first_node = end - len(nodes)
        order += [*range(end - work.logit_rows, first_node), *(first_node + row for row in nodes)]
    return order


def score_rows(logits: Tensor, works: Sequence[Work], readback: Readback) -> Callable[[], None]:
    """Score what this pass has computed of prompts and forced tokens; see ``token_scores.score``.

    Args:
        logits: all rows of ``works``.
        works: the pass.
        readback: to be read before the answer is called, which adds the scores.
    """
    if not any(work.scored for work in works):
        return lambda: None
    scored: list[ScoredRows] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        shift = end - work.computed_tokens
        scored += [ScoredRows(scores, rows.start + shift, len(rows)) for scores, rows in work.scored]
    return score(logits, scored, readback)

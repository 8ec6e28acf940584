"""Plan of a forward pass: the segment, KV blocks and logits rows of each block of a batch."""

from dataclasses import dataclass, field

from torch import Tensor

from outrider.contracts.chunks import chunk_of
from outrider.contracts.verifying import Outcome, Unfinished
from outrider.engines.kv.store import KvStore, SequenceKv
from outrider.engines.segments import Segment
from outrider.engines.verifier.block_validator import CheckedBlock
from outrider.engines.verifier.generation import HeldGeneration
from outrider.engines.verifier.tree_branches import Branches, ForkedPath, fork_paths
from outrider.engines.verifier.work import Need, Work, need_of


@dataclass(slots=True)
class PassPlan:
    """The pass under construction. Blocks added first get KV memory and prefill chunks first."""

    store: KvStore  # of all KV
    chunk_left: int  # prefix positions that this pass may still compute
    works: list[Work] = field(default_factory=list)  # added blocks, in order
    admitted: set[SequenceKv] = field(default_factory=set)  # their KV, which later blocks must not evict

    def add(
        self, index: int, checked: CheckedBlock, generation: HeldGeneration, kept_row: Tensor | None
    ) -> Outcome | None:
        """Add the work of the block at ``index`` of its batch; return an outcome instead if it contributes nothing.

        ``kept_row``: ``[vocab]``, the logits row after the committed tokens, if it is kept.
        """
        block, kv = checked.block, generation.kv
        if checked is not generation.begun:
            generation.begin(checked, kept_row)
        generation.computed_before = kv.computed_tokens
        if generation.forced_scores.impossible:
            return generation.refuse_correction(block)
        need = need_of(generation, block, kept_row)
        start = self._resident(generation, need)
        lacking = max(0, need.length - start)
        taken, _ = chunk_of(lacking, need.own_rows, self.chunk_left)
        kv.busy = True
        if taken == 0 and lacking > 0:
            return Unfinished(block.generation, block.round, lacking)
        # A tree is laid out only in the pass that decides its block; before that, only the prefix is computed.
        branches = checked.branches if taken == lacking and need.own_rows else None
        if not self._reserve(kv, need, start + taken, branches):
            return Unfinished(block.generation, block.round, lacking, waits_for_memory=True)
        work = self._work(index, checked, generation, need, taken)
        self.works.append(work)
        self.admitted.add(kv)
        self.chunk_left -= work.prefix_tokens
        return None

    def _resident(self, generation: HeldGeneration, need: Need) -> int:
        """Return the positions whose KV is resident or in the host cache, after sharing what the prefix cache has.

        Positions whose logits rows are needed do not count: they are computed again.
        """
        kv = generation.kv
        if not need.length:
            return kv.computed_tokens
        # Slots from the first needed row on are computed again, even if resident: only a computed slot gives a row.
        kv.rollback(need.first_row)
        if kv.blocks:
            kv.share_lost(need.first_row)
        else:
            kv.restore(need.token_ids(0, need.first_row + 1))
        resident = kv.computed_tokens + len(kv.on_host(need.first_row)) * self.store.block_tokens
        if generation.cached_tokens is None:
            generation.cached_tokens = resident
        return resident

    def _reserve(self, kv: SequenceKv, need: Need, positions: int, branches: Branches | None) -> bool:
        forked_blocks = 0
        if branches is not None:
            positions, forked_blocks = branches.own_positions(), sum(branches.fork_blocks(self.store.block_tokens))
        return self.store.restore(kv, positions, min(need.first_row, positions), self.admitted, forked_blocks)

    def _work(self, index: int, checked: CheckedBlock, generation: HeldGeneration, need: Need, taken: int) -> Work:
        kv, block = generation.kv, checked.block
        start, stop = kv.computed_tokens, kv.computed_tokens + taken
        self.store.computing(kv, start, stop)
        generation.computed_before = min(generation.computed_before, start)  # KV from ``start`` on is overwritten
        remaining = max(0, need.length - stop)
        own_rows, head = (0, None) if remaining else (need.own_rows, need.head)
        scored = [(scores, rows) for scores in generation.open_scores if (rows := scores.unscored(start, stop))]
        segment, forked = None, list[ForkedPath]()
        if taken:
            # A segment's logits are those of its last positions: to score a token, all rows after it are computed, too.
            logit_rows = max([own_rows, *(stop - rows.start for _, rows in scored)])
            tokens, parents = need.token_ids(start, stop), () if remaining else block.parents or ()
            branches = checked.branches if own_rows else None
            if branches is not None:
                path, context = branches.paths[0], need.token_ids(0, branches.prefix_length)
                tokens, parents = [*context[start:], *(block.draft[node] for node in path)], ()
                logit_rows -= len(block.draft) - len(path)
                forked = fork_paths(branches, kv, context, block.draft, start, self.store.block_tokens)
            segment = Segment(tokens, start, kv.blocks, logit_rows, parents)
            kv.check_writable(start, segment.stop)
        rest = segment, tuple(scored), stop, remaining, tuple(forked)
        return Work(index, block, checked, generation, own_rows, head, *rest)

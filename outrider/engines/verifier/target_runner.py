"""Passes of the target model: KV copies that are due before a pass, the pass, and KV moves behind it."""

from collections.abc import Sequence

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.engines.forward_model import BranchModel, ClearingModel, MaskedModel, SwappingModel
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.kv.store import KvStore
from outrider.engines.segments import Move, Segment
from outrider.engines.verifier.pass_rows import PassRows
from outrider.engines.verifier.two_steps import wants_hidden
from outrider.engines.verifier.work import Work, rows_in_order
from outrider.sampling.device_tensors import index_tensor


class TargetRunner:
    """The target model, with the blocks of ``store`` as its KV.

    Attributes:
        last_pass: cost of each segment of the last pass.
    """

    def __init__(self, model: MaskedModel | BranchModel, store: KvStore, vocab_size: int) -> None:
        self._store, self._vocab_size = store, vocab_size
        self.last_pass: tuple[VerifyCost, ...] = ()
        self.serve(model)

    def serve(self, model: MaskedModel | BranchModel) -> None:
        """Use this model from the next pass on."""
        self._model = model
        self._masked = model if isinstance(model, MaskedModel) else None
        self._branching = None if isinstance(model, MaskedModel) else model
        self._swapping = model if isinstance(model, SwappingModel) else None
        self._clearing = model if isinstance(model, ClearingModel) else None

    def forward(self, works: Sequence[Work]) -> PassRows:
        """Run a pass; its rows are in the order of ``works``, a tree's by node index."""
        if self._swapping is not None and (copies := self._store.taken_copies()):
            self._swap(self._swapping, copies)
        fresh = self._store.taken_fresh_blocks()
        if self._clearing is not None and fresh:
            self._clearing.clear(fresh)
        segments = [segment for work in works for segment in work.segments]
        self.last_pass = tuple(VerifyCost(len(segment.token_ids), segment.start) for segment in segments)
        if not segments:
            return PassRows(works, self._model.no_logits[:, : self._vocab_size], None)
        wanted = any(work.own_rows and wants_hidden(work.block) for work in works)
        if self._branching is None:
            result = self._model.forward(segments, want_hidden=wanted)
        else:
            forked = [copy for work in works for path in work.forked for copy in path.copies]
            result = self._branching.forward(segments, forked, want_hidden=wanted)
        logits = result.logits[:, : self._vocab_size]  # cut the padding
        hidden, order = result.hidden, rows_in_order(works)
        if order is None:
            return PassRows(works, logits, hidden)
        at = index_tensor(order, logits.device)
        return PassRows(works, logits[at], None if hidden is None else hidden[at])

    def keep_paths(self, accepted: Sequence[tuple[Work, Sequence[int]]]) -> None:
        """Bring the KV of accepted paths to their positions, in one call for all trees."""
        if self._masked is not None:
            moves = [move for work, path in accepted if (move := work.move(path)) is not None]
            if moves:
                self._masked.move(moves)

    def overwrite(self, segment: Segment) -> None:
        """Overwrite KV of a segment that is not finite: attention multiplies values at masked positions by 0.

        Only slots of blocks that are kept need it. Blocks that are freed whole, all of them if the segment begins at
        slot 0, are cleared when they are allocated again.
        """
        if self._masked is not None and segment.start:
            written = list(range(segment.start, segment.stop))
            self._masked.move([Move(segment.blocks, [0] * len(written), written)])

    @staticmethod
    def _swap(swapping: SwappingModel, copies: Sequence[HostCopy]) -> None:
        """Copy KV from and to host memory. A failure ends the engine: target blocks are published already."""
        try:
            swapping.swap(copies)
        except Exception as error:
            raise VerifierLostError(f"KV could not be copied from host memory or back: {error!r:.200}") from error

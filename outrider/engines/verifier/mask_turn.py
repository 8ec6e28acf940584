"""Divide the making of grammar masks before a pass between the engine's thread, up to 5 ms, and another thread."""

import time
from concurrent.futures import Future
from typing import Any

from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block
from outrider.engines.verifier.generation import HeldGeneration
from outrider.grammar.compiling import Grammars

_AT_ONCE_S = 0.005  # CPU time of the engine's thread per pass; the mask begun before its end is finished


class MaskTurn:
    """Masks for one pass. ``waiting``: generations to hold back from it, with the futures to wait for."""

    def __init__(self, grammars: Grammars) -> None:
        """``grammars`` makes slow masks in another thread, accounts in turn."""
        self._grammars, self._left_s = grammars, _AT_ONCE_S
        self.waiting: dict[GenerationId, Future[Any]] = {}

    def prepare(self, generation: HeldGeneration, block: Block) -> None:
        """Make the masks of a generation's next block, or have them made in another thread."""
        grammar = generation.grammar
        assert grammar is not None
        made, generation.preparing = generation.preparing, None
        if made is not None and not made.cancelled() and made.exception() is not None:
            return  # the pass raises the same error, and reports it for this block
        paths, began_s = generation.mask_paths(block), time.thread_time()
        known = grammar.prepare(paths, 0.0 if grammar.cost.slow else self._left_s)
        self._left_s -= time.thread_time() - began_s
        if not known:
            generation.preparing = self._grammars.prepare(grammar, paths, generation.account)
            self.waiting[block.generation] = generation.preparing

    def behind_resolution(self, generation: HeldGeneration, block: Block) -> None:
        """Hold a block back to the next pass if a resolution in this one commits tokens that its masks depend on."""
        if generation.grammar is not None and generation.grammar.cost.slow:
            self.waiting[block.generation] = Future()
            self.waiting[block.generation].set_result(None)

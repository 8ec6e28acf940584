"""Who makes the masks of constrained blocks before a pass: the engine's thread while they take little, else another."""

import time
from concurrent.futures import Future
from typing import Any

from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block
from outrider.engines.verifier.generation import HeldGeneration
from outrider.grammar.compiling import Grammars

_AT_ONCE_S = 0.005  # of the engine's thread for a pass, and one mask more


class MaskTurn:
    """Of one pass. ``waiting``: whose blocks are better left for another one, and for what they wait."""

    def __init__(self, grammars: Grammars) -> None:
        """Nothing is made yet; ``grammars`` has what takes long made in its own thread, accounts in turn."""
        self._grammars, self._left_s = grammars, _AT_ONCE_S
        self.waiting: dict[GenerationId, Future[Any]] = {}

    def prepare(self, generation: HeldGeneration, block: Block) -> None:
        """See to it that a pass finds the masks of this block, which is the generation's next one."""
        grammar = generation.grammar
        assert grammar is not None
        made, generation.preparing = generation.preparing, None
        if made is not None and not made.cancelled() and made.exception() is not None:
            return  # the pass meets the same, and tells of it
        paths, began_s = generation.mask_paths(block), time.thread_time()
        known = grammar.prepare(paths, 0.0 if grammar.cost.slow else self._left_s)
        self._left_s -= time.thread_time() - began_s
        if not known:
            generation.preparing = self._grammars.prepare(grammar, paths, generation.account)
            self.waiting[block.generation] = generation.preparing

    def behind_resolution(self, generation: HeldGeneration, block: Block) -> None:
        """Leave a block for the next pass where this one commits what its masks depend on."""
        if generation.grammar is not None and generation.grammar.cost.slow:
            self.waiting[block.generation] = Future()
            self.waiting[block.generation].set_result(None)

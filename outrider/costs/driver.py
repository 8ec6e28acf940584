"""Drive generations of a verifier engine, block by block."""

from collections.abc import Iterable, Mapping, Sequence

from outrider.contracts.errors import OutriderError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    AcceptanceRule,
    Block,
    OpenGeneration,
    Outcome,
    Unfinished,
    Verified,
    VerifierEngine,
)

GREEDY = SamplingParams(temperature=0.0)


class RoundFailedError(OutriderError):
    """An engine did not decide a block that it should have decided."""


class GenerationDriver:
    """Generations of one engine with equal sampling parameters.

    Attributes:
        tokens: prompt and output of each generation.
    """

    def __init__(self, engine: VerifierEngine, params: SamplingParams) -> None:
        self._engine, self._params, self._rounds = engine, params, 0
        self.tokens: dict[str, list[int]] = {}

    def open(self, name: str, prompt: Sequence[int]) -> None:
        self._engine.open(OpenGeneration(name, tuple(prompt), self._params))
        self.tokens[name] = list(prompt)

    def block(self, name: str, draft: tuple[int, ...] = ()) -> Block:
        self._rounds += 1
        return Block(
            generation=name,
            round=self._rounds,
            position=len(self.tokens[name]),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens[name]),
            draft=draft,
            rule=AcceptanceRule.GREEDY if self._params.greedy else AcceptanceRule.SHARED_NOISE,
        )

    def verify(self, blocks: Sequence[Block]) -> list[Block]:
        """Call the engine once, commit, and return the blocks that are not decided yet."""
        return self.commit(blocks, self._engine.verify(blocks))

    def commit(self, blocks: Sequence[Block], outcomes: Sequence[Outcome]) -> list[Block]:
        """Append decided tokens; return undecided blocks. A refused, lost or stuck one is a ``RoundFailedError``."""
        unfinished = []
        for block, outcome in zip(blocks, outcomes, strict=True):
            if isinstance(outcome, Unfinished) and not outcome.waits_for_memory:
                unfinished.append(block)
            elif isinstance(outcome, Verified) and outcome.next_token is not None:
                accepted = [block.draft[node] for node in outcome.accepted_path]
                self.tokens[block.generation] += [*accepted, outcome.next_token]
            else:
                raise RoundFailedError(f"needs a decision on {block.generation}, found {outcome}")
        return unfinished

    def round(self, drafts: Mapping[str, tuple[int, ...]]) -> None:
        """Run one round of these generations, calling the engine until every block is decided."""
        blocks = [self.block(name, draft) for name, draft in drafts.items()]
        while blocks:
            blocks = self.verify(blocks)

    def close(self, names: Iterable[str]) -> None:
        """Close generations without keeping their KV cached, which would speed up what is measured next."""
        for name in names:
            self._engine.close(name, keep_cache=False)
            del self.tokens[name]

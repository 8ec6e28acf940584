"""Drives generations of a verifier engine, block by block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.errors import OutriderError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified, VerifierEngine

GREEDY = SamplingParams(temperature=0.0)


class RoundFailedError(OutriderError):
    """An engine did not decide a block it should have decided."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Prompts and drafts: ``prompts[i]`` of the i-th generation, whose beginning is its shorter prompt."""

    prompts: tuple[tuple[int, ...], ...]
    drafts: tuple[tuple[int, ...], ...]


def random_tokens(generations: int, prompt: int, draft: int, vocab_size: int, seed: int) -> Tokens:
    """Random ids; no two prompts begin alike."""
    drawn = np.random.default_rng(seed).integers(vocab_size, size=(generations, prompt + draft)).tolist()
    return Tokens(tuple(tuple(row[:prompt]) for row in drawn), tuple(tuple(row[prompt:]) for row in drawn))


class GenerationDriver:
    """Generations of one engine, all with the same sampling parameters.

    Attributes:
        tokens: of each generation, prompt and output.
    """

    def __init__(self, engine: VerifierEngine, params: SamplingParams) -> None:
        """Hold none yet."""
        self._engine, self._params, self._rounds = engine, params, 0
        self.tokens: dict[str, list[int]] = {}

    def open(self, name: str, prompt: Sequence[int]) -> None:
        """Open a generation; its prompt is computed by its first blocks."""
        self._engine.open(OpenGeneration(name, tuple(prompt), self._params))
        self.tokens[name] = list(prompt)

    def block(self, name: str, draft: tuple[int, ...] = ()) -> Block:
        """The next round of one generation."""
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
        """One call of the engine; returns the blocks that are not decided yet.

        Raises:
            RoundFailedError: a block was refused, forgotten or stuck for memory.
        """
        unfinished = []
        for block, outcome in zip(blocks, self._engine.verify(blocks), strict=True):
            if isinstance(outcome, Unfinished) and not outcome.waits_for_memory:
                unfinished.append(block)
            elif isinstance(outcome, Verified) and outcome.next_token is not None:
                accepted = [block.draft[node] for node in outcome.accepted_path]
                self.tokens[block.generation] += [*accepted, outcome.next_token]
            else:
                raise RoundFailedError(f"needs a decision on {block.generation}, found {outcome}")
        return unfinished

    def round(self, drafts: Mapping[str, tuple[int, ...]]) -> None:
        """One round of these generations: as many calls as it takes until every block is decided.

        Raises:
            RoundFailedError: as ``verify``.
        """
        blocks = [self.block(name, draft) for name, draft in drafts.items()]
        while blocks:
            blocks = self.verify(blocks)

    def close(self, *, keep_cache: bool) -> None:
        """Close all."""
        for name in self.tokens:
            self._engine.close(name, keep_cache=keep_cache)
        self.tokens.clear()

"""Drives one verifier engine through the cells of ``outrider bench engines``: greedy and sampled generations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.errors import OutriderError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified, VerifierEngine

GREEDY, SAMPLED = "greedy", "sampled"
MODES = {GREEDY: SamplingParams(temperature=0.0), SAMPLED: SamplingParams(temperature=0.8, seed=1)}


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


class Driver:
    """Generations of one engine and mode. Its rounds draft the same random tokens again and again.

    Attributes:
        tokens: of each generation, prompt and output.
    """

    def __init__(self, engine: VerifierEngine, mode: str) -> None:
        """Hold none yet."""
        self._engine = engine
        self._mode = mode
        self.tokens: dict[str, list[int]] = {}
        self._drafts: dict[str, tuple[int, ...]] = {}
        self._round = 0

    def open(self, prompts: Sequence[tuple[int, ...]], drafts: Sequence[tuple[int, ...]]) -> None:
        """Open a generation for each prompt; nothing is computed yet."""
        for index, (prompt, draft) in enumerate(zip(prompts, drafts, strict=True)):
            name = f"{self._mode} {index}"
            self._engine.open(OpenGeneration(name, prompt, MODES[self._mode]))
            self.tokens[name], self._drafts[name] = list(prompt), draft

    def round(self) -> None:
        """One round of all: as many passes as it takes until every block is decided.

        Raises:
            RoundFailedError: a block was refused, forgotten or stuck for memory.
        """
        waiting = [self._block(name) for name in self.tokens]
        while waiting:
            outcomes = list(zip(waiting, self._engine.verify(waiting), strict=True))
            waiting = []
            for block, outcome in outcomes:
                if isinstance(outcome, Unfinished) and not outcome.waits_for_memory:
                    waiting.append(block)
                elif isinstance(outcome, Verified) and outcome.next_token is not None:
                    accepted = block.draft[: outcome.accepted_len]
                    self.tokens[block.generation] += [*accepted, outcome.next_token]
                else:
                    raise RoundFailedError(f"needs a decision on {block.generation}, found {outcome}")

    def close(self, *, keep_cache: bool) -> None:
        """Close all."""
        for name in self.tokens:
            self._engine.close(name, keep_cache=keep_cache)
        self.tokens.clear()
        self._drafts.clear()

    def _block(self, name: str) -> Block:
        self._round += 1
        tokens = self.tokens[name]
        return Block(
            generation=name,
            round=self._round,
            position=len(tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, tokens),
            draft=self._drafts[name],
            rule=AcceptanceRule.GREEDY if self._mode == GREEDY else AcceptanceRule.SHARED_NOISE,
        )

"""A device's side of a round, over memory: what it drafts from, what it says of it, and its own corrections.

Its distributions are the target's, disturbed; a pure function of the tokens before, so that two devices agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.exchanged import CorrectionSource, DenseDraft, ScalarDraft, SparseDraft
from outrider.sampling.distributions import Probs, draw, fixed_point, softmax, without
from outrider.sampling.noise import Purpose, uniforms
from outrider.verification.correction import draw_correction
from tests.unit.engines.reference import LogitsOf

BITS = 24


@dataclass(frozen=True)
class Tree:
    """A drafted tree and the sparse rows its nodes were drawn from."""

    draft: tuple[int, ...]
    parents: tuple[int, ...]
    distribution: SparseDraft


class FakeDevice:
    """Drafts behind any tokens for one request; holds nothing but the rows of its last chain."""

    def __init__(self, logits_of: LogitsOf, seed: int, noise: float = 1.0) -> None:
        self._logits_of, self._seed, self._noise = logits_of, seed, noise
        self._rows: list[Probs] = []

    def probs(self, tokens: Sequence[int]) -> Probs:
        """``[VOCAB]`` multiples of 2**-24."""
        logits = self._logits_of(tuple(tokens))[-1].double().numpy()
        disturbed = logits + self._noise * np.random.default_rng([1, *tokens]).standard_normal(len(logits))
        return fixed_point(softmax(disturbed), BITS) / 2.0**BITS

    def chain(self, tokens: Sequence[int], window: int) -> tuple[int, ...]:
        """``window`` tokens behind ``tokens``."""
        drawn: list[int] = []
        self._rows = []
        for _ in range(window):
            self._rows.append(self.probs([*tokens, *drawn]))
            position = len(tokens) + len(drawn)
            drawn.append(draw(self._rows[-1], float(uniforms(self._seed, position, Purpose.DRAFT_TOKEN, 1)[0])))
        return tuple(drawn)

    def scalars(self, draft: Sequence[int]) -> ScalarDraft:
        """What DSSD sends of the last chain."""
        scaled = [row[token_id] * 2.0**BITS for row, token_id in zip(self._rows, draft, strict=True)]
        return ScalarDraft(np.array(scaled, dtype=np.int64), BITS)

    def dense(self) -> DenseDraft:
        """What DSD sends of it; at least one row."""
        with np.errstate(divide="ignore"):
            return DenseDraft(np.log(np.stack(self._rows)).astype(np.float32))

    def sparse(self) -> SparseDraft:
        """What TSLT sends of it, nothing truncated but what cannot be drawn."""
        return _sparse(self._rows)

    @staticmethod
    def certain(nodes: int = 1) -> ScalarDraft:
        """What a device without doubts says of its tokens."""
        return ScalarDraft(np.full(nodes, 2**BITS, dtype=np.int64), BITS)

    def correct(self, source: CorrectionSource, accepted_len: int, position: int) -> int | None:
        """The correction behind ``accepted_len`` tokens of the last chain."""
        return draw_correction(source, self._rows[accepted_len], self._seed, position)

    def tree(self, tokens: Sequence[int], expansion: Sequence[int], *, distinct: bool) -> Tree:
        """A tree with these numbers of children by depth, drawn with or without replacement."""
        draft: list[int] = []
        parents: list[int] = []
        rows: list[Probs] = []
        layer: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
        for children in expansion:
            grown: list[tuple[int, tuple[int, ...]]] = []
            for node, path in layer:
                row = self.probs([*tokens, *path])
                rows.append(row)
                for uniform in uniforms(self._seed, len(tokens) + len(path), Purpose.DRAFT_TOKEN, children):
                    token_id = draw(row, float(uniform))
                    row = without(row, token_id) if distinct else row
                    grown.append((len(draft), (*path, token_id)))
                    draft.append(token_id)
                    parents.append(node)
            layer = grown
        return Tree(tuple(draft), tuple(parents), _sparse(rows))


def _sparse(rows: Sequence[Probs]) -> SparseDraft:
    kept = [np.flatnonzero(row).astype(np.int64) for row in rows]
    logits = [np.log(row[ids]).astype(np.float32) for row, ids in zip(rows, kept, strict=True)]
    return SparseDraft(tuple(kept), tuple(logits))

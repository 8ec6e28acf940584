"""Rounds of a drafter engine against known texts: only what the target says there is committed.

A round drafts behind the committed tokens, and commits the longest path of its draft that the text continues with, and
one token more. The first token of a response is the target's own, as in service.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.bench.trees.texts import Text
from outrider.contracts.drafting import Child, Draft, DrafterEngine, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import SamplingParams
from outrider.contracts.tree import node_depths, node_paths
from outrider.contracts.verifying import OpenGeneration
from outrider.protocols.protocol import DraftRow, Layer
from outrider.protocols.token_ids import TokenIds

SIBLINGS = 16  # ranks told apart


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums over all texts.

    Attributes:
        tokens: committed by rounds.
        rows: draft tokens verified.
        layers: tokens on the longest paths of the drafts.
    """

    rounds: int
    tokens: int
    rows: int
    layers: int

    @property
    def tokens_per_round(self) -> float:
        """With the correction or bonus token."""
        return self.tokens / self.rounds

    @property
    def rows_per_round(self) -> float:
        """Draft tokens of a round."""
        return self.rows / self.rounds


class WeightedSiblings(TokenIds):
    """``token_ids`` with lower probabilities for siblings of the most probable child than the model gives."""

    name = "weighted_siblings"
    code = 15

    def __init__(self, weight: float) -> None:
        """``weight``: factor of their probabilities."""
        self._weight = weight

    def children(self, rows: Sequence[DraftRow], layer: Layer) -> list[list[Child]]:
        told = super().children(rows, layer)
        return [[*own[:1], *((token_id, self._weight * prob) for token_id, prob in own[1:])] for own in told]


def played(
    engine: DrafterEngine,
    texts: Sequence[Text],
    plan: DraftPlan,
    vocab_size: int,
    price: DraftPrice | None = None,
    on_round: Callable[[int], object] = lambda _rounds: None,
) -> Counted:
    """Run all rounds of a plan, the texts batched."""
    writing = [_Writing(f"{number}", text) for number, text in enumerate(texts) if len(text.token_ids) > 1]
    rounds = tokens = rows = layers = 0
    for one in writing:
        engine.open(one.opening, DraftTerms(WireFormat(vocab_size)))
    live = writing
    while live:
        for draft in _drafts(engine, [one.request(plan, price) for one in live], live):
            one = draft[1]
            tokens += one.commit(1 + accepted(draft[0], one.coming))
            rows += len(draft[0].token_ids)
            layers += max(node_depths(_parents(draft[0])), default=0)
        rounds += len(live)
        on_round(len(live))
        live = [one for one in live if one.coming]
    for one in writing:
        engine.close(one.opening.generation)
    return Counted(rounds, tokens, rows, layers)


def ranks(
    engine: DrafterEngine,
    texts: Sequence[Text],
    vocab_size: int,
    on_round: Callable[[int], object] = lambda _rounds: None,
) -> list[list[int]]:
    """For each token of each response after the first: how many tokens the drafter prefers to it, up to ``SIBLINGS``.

    That is all that chains and fixed shapes depend on.
    """
    plan = DraftPlan("token_ids", 1, (SIBLINGS,))
    writing = [_Writing(f"{number}", text) for number, text in enumerate(texts)]
    found: dict[str, list[int]] = {one.opening.generation: [] for one in writing}
    for one in writing:
        engine.open(one.opening, DraftTerms(WireFormat(vocab_size)))
    live = [one for one in writing if one.coming]
    while live:
        for draft, one in _drafts(engine, [one.request(plan, None) for one in live], live):
            said = one.coming[0]
            rank = draft.token_ids.index(said) if said in draft.token_ids else SIBLINGS
            found[one.opening.generation].append(rank)
            one.commit(1)
        on_round(len(live))
        live = [one for one in live if one.coming]
    for one in writing:
        engine.close(one.opening.generation)
    return [found[one.opening.generation] for one in writing]


def shaped(ranked: Sequence[Sequence[int]], shape: Sequence[int]) -> float:
    """Tokens per round of drafts with this many children per node by depth: a chain is all ones."""
    rounds = tokens = 0
    for own in ranked:
        at = 0
        while at < len(own):
            depth = 0
            while depth < len(shape) and at + depth < len(own) and own[at + depth] < shape[depth]:
                depth += 1
            taken = min(depth + 1, len(own) - at)
            at, tokens, rounds = at + taken, tokens + taken, rounds + 1
    return tokens / rounds


def shapes_of(rows: int, deepest: int) -> list[tuple[int, ...]]:
    """Every fixed shape of at most ``rows`` nodes, chains included."""
    found: list[tuple[int, ...]] = []

    def extend(shape: tuple[int, ...], width: int, left: int) -> None:
        if shape:
            found.append(shape)
        if len(shape) < deepest:
            for children in range(1, left // width + 1):
                extend((*shape, children), width * children, left - width * children)

    extend((), 1, rows)
    return found


def accepted(draft: Draft, coming: Sequence[int]) -> int:
    """Tokens on the longest path that the text continues with."""
    paths = node_paths(_parents(draft))
    lengths = [len(path) for path in paths if [draft.token_ids[node] for node in path] == list(coming[: len(path)])]
    return max(lengths, default=0)


def _parents(draft: Draft) -> tuple[int, ...]:
    return tuple(range(-1, len(draft.token_ids) - 1)) if draft.parents is None else draft.parents


class _Writing:
    """A text as far as it is committed."""

    def __init__(self, name: str, text: Text) -> None:
        params: SamplingParams = text.params
        self.opening = OpenGeneration(name, text.prompt_ids, params, text.token_ids[:1])
        self._known = self._committed = len(text.prompt_ids) + 1
        self._token_ids = (*text.prompt_ids, *text.token_ids)
        self._round = 0

    @property
    def coming(self) -> tuple[int, ...]:
        """The tokens not committed yet."""
        return self._token_ids[self._committed :]

    def commit(self, tokens: int) -> int:
        """Commit up to ``tokens`` more; return how many there were."""
        tokens = min(tokens, len(self.coming))
        self._committed += tokens
        return tokens

    def request(self, plan: DraftPlan, price: DraftPrice | None) -> DraftRequest:
        """The request for the next block."""
        self._round += 1
        committed = self._token_ids[: self._committed]
        known, self._known = self._known, self._committed
        return DraftRequest(
            self.opening.generation,
            self._round,
            known,
            committed[known:],
            extend_prefix_hash(EMPTY_PREFIX_HASH, committed),
            plan,
            price=price,
        )


def _drafts(
    engine: DrafterEngine, requests: Sequence[DraftRequest], writing: Sequence[_Writing]
) -> list[tuple[Draft, _Writing]]:
    """Draft one block of each text."""
    for request in requests:
        engine.submit(request)
    by_name = {one.opening.generation: one for one in writing}
    drafts: list[tuple[Draft, _Writing]] = []
    while engine.busy:
        for answer in engine.step():
            assert isinstance(answer, Draft), "memory for all of them"
            drafts.append((answer, by_name[answer.generation]))
    return drafts

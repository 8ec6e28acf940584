"""A drafter without a neural network, KV or batches: a table says what follows a token."""

from collections.abc import Collection
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from outrider.contracts.drafting import Draft, DraftAnswer, DraftRequest, DraftTerms, NeedsPrefix
from outrider.contracts.errors import ContextTooLongError, UnsupportedBlockError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, OpenGeneration
from outrider.drafting.recalibration import OnVerdict
from outrider.engines.kinds import BuiltDrafter, DrafterSpec
from outrider.models.loading import load_target_facts
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup, TokenCounts


class TableModel:
    """Logits behind each token, called as a transformers model is."""

    def __init__(self, vocab_size: int) -> None:
        """The same table every time."""
        self.rows = 3.0 * torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(0))

    def __call__(self, input_ids: torch.Tensor, *, use_cache: bool = False) -> SimpleNamespace:  # noqa: ARG002 (its interface)
        """``[1, tokens]`` in, ``logits`` ``[1, tokens, vocab]`` out."""
        return SimpleNamespace(logits=self.rows[input_ids])

    def set_attn_implementation(self, name: str) -> None:
        """It has none."""


@dataclass
class _Held:
    opening: OpenGeneration
    tokens: list[int]
    request: DraftRequest | None = None
    drafted: list[int] = field(default_factory=list)


class TableDrafter:
    """``DrafterEngine`` for chains of token ids: every step gives every block its next token."""

    def __init__(self, model: TableModel, max_context_tokens: int = 256) -> None:
        """Draft from a table."""
        self.max_context_tokens = max_context_tokens
        self._rows, self._vocab_size = model.rows, len(model.rows)
        self._held: dict[GenerationId, _Held] = {}
        self._ready: list[DraftAnswer] = []

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:  # noqa: ARG002 (nothing of them matters to it)
        """See ``DrafterEngine.open``."""
        tokens = [*request.prompt_ids, *request.output_ids]
        if len(tokens) >= self.max_context_tokens:
            raise ContextTooLongError(
                f"needs {len(tokens) + 1} positions, found a drafter limit of {self.max_context_tokens}"
            )
        self._held[request.generation] = _Held(request, tokens)

    def submit(self, request: DraftRequest) -> None:
        """See ``DrafterEngine.submit``."""
        if request.plan.protocol != "token_ids" or request.plan.expansion or request.correction:
            raise UnsupportedBlockError("a table drafts chains of token ids alone")
        held, at = self._held.get(request.generation), request.feedback_position
        tokens = [] if held is None else [*held.tokens[:at], *request.feedback]
        known = held is not None and len(held.opening.prompt_ids) <= at <= len(held.tokens)
        if held is None or not known or extend_prefix_hash(EMPTY_PREFIX_HASH, tokens) != request.prefix_hash:
            self._ready.append(NeedsPrefix(request.generation, request.round))
            return
        held.tokens, held.request, held.drafted = tokens, request, []

    @property
    def busy(self) -> bool:
        """See ``DrafterEngine.busy``."""
        return bool(self._ready) or any(held.request for held in self._held.values())

    def started(self) -> tuple[GenerationId, ...]:
        """See ``DrafterEngine.started``."""
        return tuple(name for name, held in self._held.items() if held.request is not None)

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """See ``DrafterEngine.step``."""
        for name, held in self._held.items():
            if held.request is None or (among is not None and name not in among):
                continue
            window = min(held.request.plan.window, max(0, self.max_context_tokens - len(held.tokens)))
            if len(held.drafted) < window:
                held.drafted.append(self._next(held))
            if len(held.drafted) == window:
                request, position = held.request, len(held.tokens)
                self._ready.append(Draft(request.generation, request.round, position, tuple(held.drafted)))
                held.request = None
        answers, self._ready = self._ready, []
        return answers

    def close(self, generation: GenerationId) -> None:
        """See ``DrafterEngine.close``."""
        self._held.pop(generation, None)

    def usage(self) -> KvUsage:
        """A block for each generation stands for what there is none of."""
        return KvUsage(self.max_context_tokens, 100, len(self._held), 0, len(self._held), 0)

    def _next(self, held: _Held) -> int:
        tokens, opening = [*held.tokens, *held.drafted], held.opening
        counts = TokenCounts(self._vocab_size, opening.prompt_ids, tokens[len(opening.prompt_ids) :])
        group = RowGroup(opening.params, len(tokens), counts, (), 1)
        return int(choose_tokens(self._rows[tokens[-1:]], [group])[0])


def table_drafter(spec: DrafterSpec, _on_verdict: OnVerdict | None = None) -> BuiltDrafter:
    """For a model of which only vocabulary and context are read."""
    facts = load_target_facts(spec.model)
    return BuiltDrafter(TableDrafter(TableModel(facts.vocab_size), facts.max_context_tokens), facts)

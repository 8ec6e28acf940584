"""One generation on a drafter as its coordinator sees it, and what its model says without an engine."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.contracts.drafting import Draft, DraftAnswer, DrafterEngine, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import CorrectionSource, FloatRow, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup, TokenCounts
from tests.unit.engines.conftest import VOCAB, tiny_llama
from tests.unit.engines.reference import target_alone, tiny_alone, tiny_logits
from tests.unit.engines.table_drafter import TableModel

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, seed=3)
PENALISED = SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2, frequency_penalty=0.5)
PROMPT = (5, 17, 42, 8, 61, 30, 2)
TERMS = DraftTerms(WireFormat(VOCAB, top_k=20))


class Device:
    """One generation on a drafter, and what the coordinator knows of it."""

    def __init__(
        self,
        name: str,
        params: SamplingParams,
        prompt: tuple[int, ...] = PROMPT,
        protocol: ProtocolName = "token_ids",
        *,
        model: Callable[[], PreTrainedModel | TableModel] = tiny_llama,
    ) -> None:
        self.model = model
        self.name, self.params, self.prompt, self.protocol = name, params, prompt, protocol
        self.tokens = list(prompt)
        self.known = len(prompt)
        self.round = 0

    def opening(self) -> OpenGeneration:
        return OpenGeneration(self.name, self.prompt, self.params, tuple(self.tokens[len(self.prompt) :]))

    def request(
        self,
        window: int = 0,
        expansion: tuple[int, ...] = (),
        *,
        correction: CorrectionSource | None = None,
        want_hidden: bool = False,
        rows: int = 0,
    ) -> DraftRequest:
        self.round += 1
        request = DraftRequest(
            generation=self.name,
            round=self.round,
            feedback_position=self.known,
            feedback=tuple(self.tokens[self.known :]),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens),
            plan=DraftPlan(self.protocol, len(expansion) or window, expansion, rows),
            correction=correction,
            want_hidden=want_hidden,
        )
        self.known = len(self.tokens)
        return request

    def truth(self, length: int) -> tuple[int, ...]:
        """What this model says after the committed tokens, alone, drawn as the target draws."""
        if self.model is tiny_llama:
            return tuple(tiny_alone(self.tokens, self.params, length))
        return tuple(target_alone(self.model(), self.tokens, self.params, length))

    def logits(self, path: Sequence[int] = ()) -> FloatRow:
        """The model's own adjusted logits behind the committed tokens and a path: ``[vocab]`` float32."""
        tokens = [*self.tokens, *path]
        with torch.inference_mode():
            logits = tiny_logits(tuple(tokens))[-1:].clone()
            counts = TokenCounts(VOCAB, self.prompt, tokens[len(self.prompt) :])
            adjusted = adjust_logits(logits, [RowGroup(self.params, len(tokens), counts, (), 1)])
        row: FloatRow = adjusted[0].numpy()
        return row


def answers_of(engine: DrafterEngine, most_steps: int = 200) -> dict[str, DraftAnswer]:
    """Step until there is nothing to do."""
    answers: dict[str, DraftAnswer] = {}
    for _ in range(most_steps):
        if not engine.busy:
            return answers
        answers |= {answer.generation: answer for answer in engine.step()}
    raise AssertionError("still busy")


def answer_to(engine: DrafterEngine, request: DraftRequest) -> DraftAnswer:
    """Submit one request and wait for its answer."""
    engine.submit(request)
    return answers_of(engine)[request.generation]


def draft_of(engine: DrafterEngine, request: DraftRequest) -> Draft:
    """Its draft."""
    answer = answer_to(engine, request)
    assert isinstance(answer, Draft)
    return answer


def parents_of(draft: Draft) -> tuple[int, ...]:
    """Of a tree."""
    assert draft.parents is not None
    return draft.parents


def path_tokens(draft: Draft, node: int) -> list[int]:
    """Tokens from the prefix to a node, the node included; of -1 none."""
    parents = parents_of(draft)
    tokens: list[int] = []
    while node >= 0:
        tokens.append(draft.token_ids[node])
        node = parents[node]
    return tokens[::-1]


def children_of(draft: Draft, node: int) -> list[int]:
    """Tokens of a node's children, in order."""
    return [t for t, parent in zip(draft.token_ids, parents_of(draft), strict=True) if parent == node]


def inner_nodes(draft: Draft) -> list[int]:
    """Nodes with children, the prefix first."""
    return sorted(set(parents_of(draft)))


class Passes:
    """Counts the tokens a model computes."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.tokens = 0
        model.get_input_embeddings().register_forward_pre_hook(self._count)

    def _count(self, module: torch.nn.Module, args: Any) -> None:  # noqa: ARG002 (hook)
        self.tokens += args[0].numel()

    def taken(self) -> int:
        """Tokens since this was last asked."""
        tokens, self.tokens = self.tokens, 0
        return tokens

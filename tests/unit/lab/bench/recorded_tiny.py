"""Responses and drafts of the tiny models, and a server that makes them."""

from functools import cache

from actors.messages import ModelCard
from lab.bench.capacity.cell import Server
from lab.bench.capacity.run import RunSettings, configured
from lab.bench.harness.recorded_drafts import RecordedResponse, greedy_drafts, greedy_responses
from serve_app.coordination.generations.generations import Target
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter, torch_verifier
from tests.unit.serve_app.api.in_memory_service import TOKENIZER, LocalVerifier, draft_model
from tests.unit.virtual_clock import now_s

PROMPTS = tuple((number, 7, 3 * number + 1, 40, 2, 60 + number) for number in range(4))
TOKENS, K_MAX = 40, 5


@cache
def tiny_responses() -> tuple[RecordedResponse, ...]:
    """One for each prompt."""
    outputs = greedy_responses(torch_verifier(tiny_llama()), PROMPTS, TOKENS, ())
    drafts = greedy_drafts(torch_drafter(draft_model()), PROMPTS, outputs, K_MAX, VOCAB)
    return tuple(map(RecordedResponse, PROMPTS, outputs, drafts))


def tiny_server(verifier: LocalVerifier, settings: RunSettings) -> Server:
    """The coordinator's parts over a verifier in this process."""
    card = ModelCard("tiny", "", "", VOCAB, (), verifier.max_context_tokens)
    texts = [f"w{number}" for number in range(VOCAB)]
    return Server(configured(settings), Target(card, TOKENIZER, texts), verifier, now_s)

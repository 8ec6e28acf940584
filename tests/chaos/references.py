"""What the target alone says to each stream: plain transformers, one request at a time; kept in a file between runs."""

import json
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import torch
from transformers import DynamicCache

from outrider.config.schema import ToolFormatName
from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel, load_target
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup, TokenCounts
from outrider.text.tokens import TokenTable
from tests.chaos.agents.asks import TEMPERATURE, Ask
from tests.chaos.agents.models import prompt_of
from tests.chaos.schedules import Stream, StreamKind
from tests.chaos.told import Expected, Told
from tests.cluster.reference import ids_of, shown

PROMPTS = (
    "Once upon a time there was a lighthouse keeper who",
    "The three primary colours are",
    "def fibonacci(n):\n    ",
    "A short letter to my neighbour about the garden fence:\n\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam, thank you for your letter. " + "We have read it with care. " * 12,
)
_STOP_CHARS = 4


class Alone:
    """The target alone."""

    def __init__(self, file: Path, most_tokens: int) -> None:
        """``file`` keeps what was once computed; ``most_tokens`` of each answer."""
        self._file, self._most_tokens = file, most_tokens
        self._known: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}

    @cached_property
    def target(self) -> LoadedModel:
        """Loaded once it is needed."""
        torch.set_num_threads(1)
        return load_target("embedded", dtype="float32", device="cpu")

    @cached_property
    def _table(self) -> TokenTable:
        return TokenTable(self.target.tokenizer.backend_tokenizer)

    def prompt(self, stream: Stream) -> list[int]:
        """A stream's prompt, as tokens."""
        return list(self.target.tokenizer(PROMPTS[stream.prompt % len(PROMPTS)])["input_ids"])

    def stop(self, stream: Stream) -> str | None:
        """The stop string of a stream: some characters of its first choice."""
        if stream.stop_at is None:
            return None
        text = shown(self.target, self._tokens(stream, 0))
        at = int(stream.stop_at * (len(text) - _STOP_CHARS))
        return text[at : at + _STOP_CHARS]

    def expected(self, stream: Stream) -> tuple[Expected, ...]:
        """Each choice of a greedy or seeded stream."""
        stop = self.stop(stream)
        return tuple(self._expected(self._tokens(stream, choice), stop) for choice in range(stream.n))

    def agent(self, stream: Stream, form: ToolFormatName) -> list[int] | None:
        """The tokens of an agent's plain text, where its prompt is known."""
        if stream.agent is None or stream.agent.ask is not Ask.TEXT:
            return None
        prompt = prompt_of(self.target.tokenizer, form, stream.prompt)
        if prompt is None:
            return None
        params = SamplingParams(TEMPERATURE if stream.seed else 0.0, seed=stream.seed)
        return self._kept(repr(prompt), prompt, params)[: stream.tokens]

    def foreign(self, stream: Stream, told: Told) -> list[int]:
        """Where a semantic stream is not what the target would have said behind what is before it."""
        prompt, tokens = self.prompt(stream), ids_of(self.target, told.names(0))
        if not tokens:
            return []
        with torch.inference_mode():
            logits = self.target.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        own = logits[:, : self.target.vocab_size].argmax(dim=-1).tolist()
        return [i for i, token_id in enumerate(tokens) if token_id != own[i]]

    def _expected(self, tokens: Sequence[int], stop: str | None) -> Expected:
        text, finish = shown(self.target, tokens), "length"
        if stop is not None and stop in text:
            text, finish = text[: text.index(stop)], "stop"
        return Expected(tuple(map(self._table.name, tokens)), text, finish)

    def _tokens(self, stream: Stream, choice: int) -> list[int]:
        greedy = stream.kind is not StreamKind.SEEDED
        seed = 0 if greedy else _choice_seed(stream.seed, choice)
        params = SamplingParams(0.0 if greedy else TEMPERATURE, seed=seed)
        return self._kept(repr(PROMPTS[stream.prompt % len(PROMPTS)]), self.prompt(stream), params)[: stream.tokens]

    def _kept(self, told: str, prompt: Sequence[int], params: SamplingParams) -> list[int]:
        """The answer to a prompt, which the file has as ``told``."""
        key = f"{told} {'greedy' if params.greedy else params.seed} {self._most_tokens}"
        if key not in self._known:
            self._known[key] = self._endless(prompt, params)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._known))
        return self._known[key]

    @torch.inference_mode()
    def _endless(self, prompt: Sequence[int], params: SamplingParams) -> list[int]:
        """As ``ignore_eos`` has it: an end of sequence is a token like others."""
        target = self.target
        cache = DynamicCache(config=target.model.config)
        tokens, new = list(prompt), list(prompt)
        while len(tokens) - len(prompt) < self._most_tokens:
            ids = torch.tensor([new])
            output = target.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits = output.logits[0, :, : target.vocab_size]
            if params.greedy:
                new = [int(logits[0].argmax())]
            else:
                counts = TokenCounts(target.vocab_size, prompt, tokens[len(prompt) :])
                new = choose_tokens(logits, [RowGroup(params, len(tokens), counts, (), 1)]).tolist()
            tokens += new
        return tokens[len(prompt) :]


def _choice_seed(seed: int, choice: int) -> int:
    """As the API's reference says: the request's own for choice 0; then BLAKE2b of both numbers, its first 8 bytes."""
    if choice == 0:
        return seed
    content = seed.to_bytes(8, "little") + choice.to_bytes(8, "little")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")

"""Semantic responses beside others, and their invariant by the service's own scores."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import TokenTable
from tests.cluster.prompts import CHATS
from tests.cluster.served import Service

UPLOADS = ("wisv_full", "wisv_selective")
TOKENS = 60


@dataclass(frozen=True)
class Judged:
    """A response, and where it says that it is not the target's own."""

    prompt: str
    names: list[str]  # of its tokens
    overrides: list[int]

    def check(self, service: Service) -> None:
        """Whole, and everywhere but there what the target would have said behind what is before it."""
        assert len(self.names) == TOKENS
        tokenizer = load_tokenizer("embedded")
        table = TokenTable(tokenizer.backend_tokenizer)
        ids = {table.name(i): i for i in range(len(tokenizer))}
        prompt = tokenizer(self.prompt)["input_ids"]
        whole = [*prompt, *(ids[name] for name in self.names)]
        scored = service.complete(whole, echo=True, logprobs=1, max_tokens=0)["choices"][0]["logprobs"]
        best = [max(row, key=row.__getitem__) for row in scored["top_logprobs"][len(prompt) :]]
        assert [i for i, (own, said) in enumerate(zip(best, self.names, strict=True)) if own != said] == self.overrides


@contextmanager
def judged_beside(service: Service) -> Iterator[list["Future[Judged]"]]:
    """A response by each upload, under way while the block is; they may end behind it."""
    with ThreadPoolExecutor(len(UPLOADS)) as pool:
        yield [pool.submit(_judged, service, CHATS[i], protocol) for i, protocol in enumerate(UPLOADS)]


def _judged(service: Service, prompt: str, protocol: str) -> Judged:
    answer: dict[str, Any] = service.complete(
        prompt,
        max_tokens=TOKENS,
        temperature=0,
        ignore_eos=True,
        logprobs=0,
        outrider={"verification": "semantic", "protocol": protocol},
    )
    usage = answer["usage"]["outrider"]
    return Judged(prompt, answer["choices"][0]["logprobs"]["tokens"], usage["overrides"][0])

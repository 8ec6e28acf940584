"""What a client may be told of tokens and rounds, through real engines and rounds."""

from collections import Counter
from dataclasses import replace

import pytest

from outrider.contracts.requests import GenerationChunk, TokenOrigin
from tests.unit.serve_app.api.in_memory_service import TOKENIZER, Service, drafter, request_for, tokens_of
from tests.unit.serve_app.coordination.test_prompt_lookup import REPETITIVE, serving
from tests.unit.virtual_clock import on_loop


def check(service: Service, chunks: list[GenerationChunk]) -> Counter[TokenOrigin]:
    """Every token has its piece, and every round its time; how many tokens are whose."""
    pieces = [piece for chunk in chunks if chunk.details for piece in chunk.details.pieces]
    rounds = [sent for chunk in chunks if chunk.details for sent in chunk.details.rounds]
    assert len(pieces) == len(tokens_of(chunks))
    assert "".join(piece.text for piece in pieces) == TOKENIZER.decode(tokens_of(chunks))
    assert sum(sent.committed_tokens for sent in rounds) == len(pieces)
    assert len(rounds) == len(service.timings) == chunks[-1].stats.rounds
    for sent, timing in zip(rounds, service.timings, strict=True):
        assert dict(sent.phases_s) == timing.phases_s
        assert sum(seconds for _, seconds in sent.phases_s) == pytest.approx(timing.total_s)
    assert [sent.ended_s for sent in rounds] == sorted(sent.ended_s for sent in rounds)
    return Counter(piece.origin for piece in pieces)


@pytest.mark.parametrize("window", [0, 5])
@on_loop
async def test_tokens_and_rounds_are_told(window: int) -> None:
    service = Service(drafter())
    chunks = await service.response(replace(request_for(window=window), max_tokens=60, details=True))
    origins = check(service, chunks)
    assert origins[TokenOrigin.ACCEPTED] == chunks[-1].stats.accepted_tokens
    assert (origins[TokenOrigin.ACCEPTED] > 0) == (window > 0)


@on_loop
async def test_what_was_looked_up_has_an_origin_of_its_own() -> None:
    service = serving(drafter())
    request = replace(request_for(params=REPETITIVE, window=None), max_tokens=60, details=True)
    chunks = await service.response(request)
    origins = check(service, chunks)
    assert origins[TokenOrigin.LOOKUP] > 0
    assert origins[TokenOrigin.LOOKUP] + origins[TokenOrigin.ACCEPTED] == chunks[-1].stats.accepted_tokens


@on_loop
async def test_nobody_who_does_not_ask_is_told() -> None:
    chunks = await Service(drafter()).response(request_for())
    assert all(chunk.details is None for chunk in chunks)

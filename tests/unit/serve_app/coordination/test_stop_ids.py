"""Tokens that end a response, of the request's own: the same text with drafts of every protocol as without."""

from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.requests import FinishReason, GenerationRequest
from outrider.protocols.registry import PROTOCOLS
from tests.unit.serve_app.api.in_memory_service import PARAMS, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.virtual_clock import on_loop


def asked(**fields: Any) -> GenerationRequest:
    return replace(request_for(**fields), max_tokens=24)


@pytest.mark.parametrize("protocol", [None, *PROTOCOLS])
@pytest.mark.parametrize("keeps", [False, True])
@on_loop
async def test_a_draft_ends_where_the_target_alone_would(protocol: str | None, keeps: bool) -> None:
    base = asked(params=PARAMS["greedy"])
    alone = truth_of(base)
    at = next(i for i in range(8, len(alone)) if alone[i] not in alone[:i])
    window = 0 if protocol is None else 5
    service = Service(drafter(), protocols=(protocol or "token_ids",))
    chunks = await service.response(replace(base, window=window, stop_ids=(alone[at],), keeps_stop=keeps))
    assert tokens_of(chunks) == alone[: at + 1]
    assert chunks[-1].finish_reason is FinishReason.STOP
    assert "".join(chunk.text for chunk in chunks).split() == [f"w{i}" for i in alone[: at + keeps]]
    stats = chunks[-1].stats
    assert sum(stats.kept_drafts) == stats.speculative_rounds
    assert sum(kept * rounds for kept, rounds in enumerate(stats.kept_drafts)) == stats.accepted_tokens


@pytest.mark.parametrize("window", [0, 5])
@on_loop
async def test_stop_strings_are_kept_and_take_drafts_back(window: int) -> None:
    alone = truth_of(asked(params=PARAMS["greedy"]))
    at = next(i for i in range(8, len(alone)) if alone[i] not in alone[:i])
    request = replace(asked(params=PARAMS["greedy"]), window=window, stop=(f"w{alone[at]}",), keeps_stop=True)
    chunks = await Service(drafter()).response(request)
    assert "".join(chunk.text for chunk in chunks).split() == [f"w{i}" for i in alone[: at + 1]]
    stats = chunks[-1].stats
    assert sum(kept * rounds for kept, rounds in enumerate(stats.kept_drafts)) == stats.accepted_tokens


@on_loop
async def test_min_tokens_withholds_stop_tokens_too() -> None:
    base = asked(params=PARAMS["greedy"])
    first = truth_of(base)[0]
    chunks = await Service(drafter()).response(replace(base, stop_ids=(first,), min_tokens=4))
    assert first not in tokens_of(chunks)[:4]

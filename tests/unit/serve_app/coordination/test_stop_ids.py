"""Tokens that end a response, of the request's own: the same text with drafts of every protocol as without."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from outrider.contracts.requests import FinishReason, GenerationRequest, SamplingParams
from outrider.protocols.registry import PROTOCOLS
from tests.unit.engines.reference import tiny_alone
from tests.unit.serve_app.api.in_memory_service import PARAMS, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import PROMPT
from tests.unit.virtual_clock import on_loop

LEAST = 4
SAME_DRAWS = (None, "token_ids", "wisv_full", "wisv_selective")  # as the target's own; None: the coordinator chooses
SEEDED = SamplingParams(temperature=1.0, top_p=0.95, seed=11, logit_bias=((3, 1.5), (7, -100.0), (12, -2.0)))


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


@cache
def stopped_late() -> tuple[tuple[int, ...], list[int]]:
    """Two stop tokens, one that would be drawn at once and one that ends the response later; and that response."""
    first = truth_of(asked(params=SEEDED))[0]
    for later in seeded_alone((first,))[8:]:
        tokens = seeded_alone((first, later))
        if LEAST < len(tokens) < 24:
            return (first, later), tokens
    raise AssertionError("needs another seed")


def seeded_alone(stop_ids: tuple[int, ...]) -> list[int]:
    """What the target alone draws: none of the stop tokens before ``LEAST``, and nothing behind the first of them."""
    withheld = replace(SEEDED, withheld_ids=stop_ids, withheld_until=len(PROMPT) + LEAST)
    tokens = tiny_alone(PROMPT, withheld, 24)
    end = next((i for i, token in enumerate(tokens) if i >= LEAST and token in stop_ids), len(tokens) - 1)
    return tokens[: end + 1]


@pytest.mark.parametrize(
    ("protocol", "window"),
    [(name, 0) for name in (None, *PROTOCOLS)] + [(name, window) for name in SAME_DRAWS for window in (3, 7)],
)
@pytest.mark.parametrize("keeps", [False, True])
@on_loop
async def test_seeded_answers_are_the_same_under_every_protocol(protocol: str | None, window: int, keeps: bool) -> None:
    """With bias, stop tokens and fewest tokens; protocols whose rules draw other tokens are asked for no drafts."""
    stop_ids, expected = stopped_late()
    fields: dict[str, Any] = {"stop_ids": stop_ids, "min_tokens": LEAST, "keeps_stop": keeps, "window": window}
    service = Service(drafter(), protocols=tuple(PROTOCOLS))
    chunks = await service.response(replace(asked(params=SEEDED), protocol=protocol, **fields))
    assert tokens_of(chunks) == expected
    assert chunks[-1].finish_reason is FinishReason.STOP
    shown = expected if keeps else expected[:-1]
    assert "".join(chunk.text for chunk in chunks).split() == [f"w{i}" for i in shown]
    assert {name for name, _ in chunks[-1].stats.protocols} <= {"token_ids"}
    await service.idle()

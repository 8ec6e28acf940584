"""A drafter's host: what it refuses before any work, and orders that nobody waits for any more."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from actors.waiting import within
from outrider.contracts.drafting import DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import ContextTooLongError, MessageError, VocabularyMismatchError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import CoordinatorSession
from tests.unit.actors.coordinator.transport_suite import (
    LONGEST,
    PARAMS,
    PROMPT,
    SOON_S,
    STUCK,
    TERMS,
    VOCAB,
    SuiteHost,
)


def run(work: Awaitable[Any]) -> None:
    asyncio.run(within(SOON_S, work))


def opening(name: str = "g", times: int = 1) -> OpenGeneration:
    return OpenGeneration(name, PROMPT * times, PARAMS)


def order_of(name: str, number: int = 0, feedback: tuple[int, ...] = ()) -> bytes:
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, (*PROMPT, *feedback))
    request = DraftRequest(name, number, len(PROMPT), feedback, prefix_hash, DraftPlan("token_ids", 3))
    return CoordinatorSession(TERMS.wire, name).encode_order(request)


def test_token_ids_of_another_vocabulary_are_refused() -> None:
    """Those outside the model would be looked up in its embedding."""

    async def opened() -> None:
        host = SuiteHost()
        for vocab_size in (VOCAB - 1, VOCAB + 1, 2**31):
            with pytest.raises(VocabularyMismatchError, match=f"a vocabulary of {VOCAB}, found {vocab_size}"):
                await host.open(opening(), DraftTerms(WireFormat(vocab_size)))
        assert not (await host.held()).generations

    run(opened())


def test_what_is_too_long_is_refused_before_it_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = list[int]()

    def noted(prefix_hash: int, token_ids: tuple[int, ...]) -> int:
        hashed.append(len(token_ids))
        return extend_prefix_hash(prefix_hash, token_ids)

    order = order_of("g", feedback=(7,) * (LONGEST + 1))
    monkeypatch.setattr("outrider.session.session.extend_prefix_hash", noted)

    async def sent() -> None:
        host = SuiteHost()
        with pytest.raises(ContextTooLongError, match=f"a drafter limit of {LONGEST}"):
            await host.open(opening(times=100), TERMS)
        assert not hashed
        await host.open(opening(), TERMS)
        hashed.clear()
        with pytest.raises(MessageError, match=f"at most {LONGEST} tokens, found {LONGEST + 1}"):
            await host.exchange("g", order)
        assert not hashed
        assert (await host.exchange("g", order_of("g"))).data

    run(sent())


@pytest.mark.parametrize("by", ["another order", "opening it again"])
def test_an_order_that_is_superseded_is_waited_for_no_longer(by: str) -> None:
    async def superseded() -> None:
        host = SuiteHost()
        await asyncio.gather(*(host.open(opening(name), TERMS) for name in (STUCK, "other")))
        first = asyncio.ensure_future(host.exchange(STUCK, order_of(STUCK)))
        other = asyncio.ensure_future(host.exchange("other", order_of("other")))
        await asyncio.sleep(0)
        if by == "another order":
            second = asyncio.ensure_future(host.exchange(STUCK, order_of(STUCK, 1, (7,))))
        else:
            second = asyncio.ensure_future(host.open(opening(STUCK), TERMS))  # type: ignore[arg-type]  # of nothing
        await asyncio.sleep(0)
        host.drafter.may_go_on.set()
        await asyncio.wait({first})
        assert first.cancelled()
        await second
        assert (await other).data, "of another generation"

    run(superseded())

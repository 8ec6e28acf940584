"""A drafter actor's calls without Ray: which failures say that the drafter is gone, and which leave that open."""

import asyncio
import pickle
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, ObjectLostError

from actors.coordinator import transport as transports
from actors.coordinator.transport import RayDrafterTransport
from actors.plain_handle import PlainHandle
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    OutriderError,
)
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS, VersionRange
from outrider.wire.replies import Answer


class Method:
    """Called as a method of an actor's handle is."""

    def __init__(self, answer: Awaitable[Answer]) -> None:
        self._answer = answer

    def at_most(self, _most_bytes: int) -> "Method":
        """The same."""
        return self

    def remote(self, *_: object) -> Awaitable[Answer]:
        """What stands for the reference."""
        return self._answer


class Handle:
    """Of an actor with one method."""

    messages = VERSIONS.messages

    def __init__(self, answer: Awaitable[Answer]) -> None:
        self.exchange = Method(answer)


async def failing(error: Exception) -> Answer:
    raise error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ActorDiedError(), DrafterLostError),
        (ObjectLostError("00" * 28, None, ""), DrafterSilentError),
        (DrafterBrokenError("failed: nan"), DrafterBrokenError),
        (ContextTooLongError("no room"), ContextTooLongError),
    ],
    ids=["the actor died", "its answer is lost", "it failed", "it is too small"],
)
def test_a_failure_is_told_as_what_it_says_of_the_drafter(error: Exception, raised: type[OutriderError]) -> None:
    async def exchanged() -> None:
        transport = RayDrafterTransport("d", cast("Any", Handle(failing(error))))
        with pytest.raises(raised) as told:
            await transport.exchange("g", b"", 60.0)
        assert type(told.value) is raised

    asyncio.run(exchanged())


def test_a_drafter_that_is_late_may_live() -> None:
    async def exchanged() -> None:
        never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        transport = RayDrafterTransport("d", cast("Any", Handle(never)))
        with pytest.raises(DrafterSilentError, match="needs to answer within 0 s"):
            await transport.exchange("g", b"", 0.0)

    asyncio.run(exchanged())


@pytest.mark.parametrize(("device", "agreed"), [((2, 3), 3), ((3, 9), 4), (None, 2), ((5, 6), None)], ids=str)
def test_the_coordinators_own_versions_are_those_agreed_on(
    device: tuple[int, int] | None, agreed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the fleet knows. A fleet of the last release tells none: its drafters know 2."""
    monkeypatch.setattr(transports, "VERSIONS", replace(VERSIONS, messages=VersionRange(2, 4)))
    handle = PlainHandle(cast("Any", None))
    if device is not None:
        handle.messages = VersionRange(*device)
    transport = RayDrafterTransport("d", pickle.loads(pickle.dumps(handle)))
    if agreed is not None:
        assert transport.message_version == agreed
        return
    opening = OpenGeneration("g", (5, 17), SamplingParams())
    with pytest.raises(DrafterLostError, match=r"drafter d needs messages of version 2\.\.4, found 5\.\.6"):
        asyncio.run(transport.open(opening, DraftTerms(WireFormat(41)), 60.0))


def test_a_format_that_the_last_release_pickled_has_its_version() -> None:
    """Which was no field of it."""
    old = WireFormat(41, top_k=7, version=9)
    state: Any = old.__getstate__()
    read = WireFormat.__new__(WireFormat)
    read.__setstate__(state[:-1])
    assert read == replace(old, version=2)
    assert pickle.loads(pickle.dumps(old)) == old

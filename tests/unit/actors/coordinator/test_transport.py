"""A drafter actor's calls without Ray: which failures say that the drafter is gone, and which leave that open."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, ObjectLostError

from actors.coordinator.transport import RayDrafterTransport
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    OutriderError,
)
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

    message_version = 2

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

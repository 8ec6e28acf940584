"""A named actor is looked for beside whatever else runs, by one search at a time."""

import asyncio
import threading
from typing import Any

import pytest

from actors.waiting import Named


class Head:
    """Of the cluster: answers once it is up."""

    def __init__(self) -> None:
        self.up, self.asked = threading.Event(), 0
        self.actor: Any = "the actor"

    def find(self) -> Any:
        """What Ray's search does."""
        self.asked += 1
        self.up.wait(60)
        if self.actor is None:
            raise ValueError("no such actor")
        return self.actor


def test_a_head_that_does_not_answer_blocks_nobody_and_is_asked_once() -> None:
    async def run() -> None:
        head = Head()
        named = Named(head.find, deadline_s=0.01)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await named.handle()
        assert head.asked == 1
        head.up.set()
        found: Any = None
        while found is None:
            try:
                found = await named.handle()
            except TimeoutError:
                continue
        assert (found, named.known, head.asked) == ("the actor", "the actor", 1)
        named.lost()
        head.actor = "another"
        assert (await Named(head.find, 60.0).handle(), named.known) == ("another", None)

    asyncio.run(run())


def test_a_search_that_fails_is_made_anew() -> None:
    async def run() -> None:
        head = Head()
        head.up.set()
        head.actor, named = None, Named(head.find, 60.0)
        with pytest.raises(ValueError, match="no such actor"):
            await named.handle()
        head.actor = "the actor"
        assert await named.handle() == "the actor"

    asyncio.run(run())

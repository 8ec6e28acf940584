"""Keeps a device at a gateway: dials it, and again when the connection is lost, and goes where it is told to.

Sessions and KV are the process's, so that a connection that is lost costs nothing but the time to dial.
"""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from websockets.exceptions import WebSocketException

from edge.answering import AnswerBounds
from edge.dial_failures import failure_text, never_again, usual_wait_s, wait_range_s
from edge.dialled_link import DIAL_S, DialledLink, GatewayRefusedError, GatewaySilentError
from edge.drafter_cache import DrafterCache, open_file
from edge.gateway_access import GatewayAccess
from edge.loaded_drafter import LoadedDrafter
from outrider import __version__
from outrider.contracts.errors import OutriderError
from outrider.versions import DIAL_VERSIONS, VERSIONS
from outrider.wire.dialling import PROCESS_BYTES, Hello, MoveTo, Welcome

_SPREAD_S = 0.2  # devices of a gateway that stands still do not all dial at once
_MOST_LINKS = 2  # one that is left, and one that is dialled in its place
_MOST_ADDRESSES = 20
_EXPECTED = (OSError, WebSocketException, OutriderError, ValueError)  # (the last of what is no host's name)


class Dialler:
    """``link`` says where it is, or why not; ``drafting`` what drafts, once the gateway has told."""

    def __init__(
        self,
        access: GatewayAccess,
        cache: DrafterCache,
        *,
        name: str = "",
        threads: int = 1,
        kv_budget_mib: int = 256,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called when ``link`` says something else."""
        self.link = self._where = f"dialling {access.address}"
        self.drafting: LoadedDrafter | None = None
        self._access, self._cache, self._changed = access, cache, changed
        self._name, self._threads, self._kv_budget_mib = name, threads, kv_budget_mib
        self._process, self._dials, self._bounds = os.urandom(PROCESS_BYTES), 0, AnswerBounds()
        self._addresses = [access.address]  # the next to dial first
        self._links: dict[asyncio.Task[None], DialledLink] = {}
        self._ended = asyncio.Event()  # some of them
        self._served: DialledLink | None = None
        self._loading, self._digest = asyncio.Lock(), b""
        self._lost: Exception | None = None
        self._failures, self._stopping = 0, False
        self._leaving: asyncio.Task[None] | None = None
        self._beside: asyncio.Task[None] | None = None  # dials, as the link that is served may be dead

    async def run(self) -> None:
        """Dial, and again, until this is cancelled, or a gateway refuses the device for good.

        Raises:
            GatewayRefusedError: only somebody who changes something can help.
        """
        try:
            while not self._stopping:
                self._dial(self._addresses[0])
                while self._links:
                    await self._ended.wait()
                    self._ended.clear()
                    self._drop_ended()
                await asyncio.sleep(self._pause_s())
        finally:
            for task in self._links:
                task.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    async def stop(self) -> None:
        """Tell gateways that this device stops."""
        self._stopping = True
        await asyncio.gather(*(link.bye() for link in self._links.values()))

    def hello(self) -> Hello:
        self._dials += 1
        return Hello(
            DIAL_VERSIONS,
            VERSIONS,
            __version__,
            self._process,
            self._dials,
            name=self._name,
            cached=self._digest or self._cache.newest(),
            threads=self._threads,
        )

    async def drafting_for(self, address: str, welcome: Welcome) -> LoadedDrafter:
        """Return what drafts with the file that a gateway names; another one in memory is dropped."""
        async with self._loading:
            if self.drafting is not None:
                if self._digest == welcome.file:
                    return self.drafting
                self.drafting.end()
                self.drafting = None
            file = await self._file(address, welcome)
            self._say(f"{welcome.device} at {address}, loading the drafter")
            drafting = await LoadedDrafter.load(file, None, self._threads, self._kv_budget_mib)
            self.drafting, self._digest = drafting, welcome.file
            return drafting

    def note_served(self, link: DialledLink, welcome: Welcome) -> None:
        """Note the gateways to dial next, and leave the one before."""
        self._failures = 0
        known = dict.fromkeys((link.address, *welcome.others, self._access.address, *self._addresses))
        self._addresses = list(known)[:_MOST_ADDRESSES]
        before, self._served = self._served, link
        if before is not None and before in self._links.values():
            self._leaving = asyncio.ensure_future(before.close_when_answered())
        self._where = f"{welcome.device} at {link.address}"
        self._say(self._where)

    def move(self, link: DialledLink, to: MoveTo) -> None:
        """Dial there, and stay here until that gateway serves this device."""
        if link is not self._served or len(self._links) >= _MOST_LINKS or self._stopping:
            return
        self._addresses = list(dict.fromkeys((to.address, *self._addresses)))[:_MOST_ADDRESSES]
        self._say(f"moving to {to.address}: {to.reason}")
        self._dial(to.address)

    def doubt(self, link: DialledLink) -> None:
        """Dial beside a link that may be dead: it drafts on if it was only slow."""
        if link is self._served and len(self._links) < _MOST_LINKS and not self._stopping:
            wait_s = random.uniform(0.0, _SPREAD_S)  # noqa: S311 (spreads devices)
            self._beside = self._dial(self._addresses[0], link.dial_s, wait_s)

    def trust(self, link: DialledLink) -> None:
        """Dial no more beside a link that was only slow, unless that is connected already."""
        if link is not self._served or self._beside is None:
            return
        self._addresses = list(dict.fromkeys((link.address, *self._addresses)))  # others were tried meanwhile
        if self._beside in self._links and not self._links[self._beside].is_connected:
            self._beside.cancel()
        self._beside = None

    def _dial(self, address: str, dial_s: float = DIAL_S, wait_s: float = 0.0) -> "asyncio.Task[None]":
        link = DialledLink(address, self._access, self, self._bounds, dial_s)

        async def serve() -> None:
            await asyncio.sleep(wait_s)
            await link.serve()

        task = asyncio.ensure_future(serve())
        task.add_done_callback(lambda _: self._ended.set())
        self._links[task] = link
        return task

    def _drop_ended(self) -> None:
        """Forget links that have ended, and note why."""
        for task in [task for task in self._links if task.done()]:
            link = self._links.pop(task)
            if task.cancelled():
                continue
            error = task.exception()
            if not link.served:
                self._failures += task is not self._beside  # a link that is only slow has not failed
                if link.address == self._addresses[0]:
                    self._addresses.append(self._addresses.pop(0))
                if self._links:  # it could not be moved
                    self._say(self._where)
            if not isinstance(error, _EXPECTED):
                raise error or AssertionError("a link ends by an error")
            self._lost = error

    def _pause_s(self) -> float:
        """Say why there is no gateway, and return how long to wait before the next dial."""
        error = self._lost
        assert error is not None
        if isinstance(error, GatewayRefusedError) and never_again(error):
            raise error
        if isinstance(error, GatewaySilentError):
            return 0.0
        usual_s = usual_wait_s(self._failures, len(self._addresses))
        wait_s = random.uniform(*wait_range_s(error, usual_s))  # noqa: S311 (spreads devices)
        self._say(f"not connected: {failure_text(error)}; dials {self._addresses[0]} in {max(1, round(wait_s))} s")
        return wait_s

    async def _file(self, address: str, welcome: Welcome) -> Path:
        loop, abandoned = asyncio.get_running_loop(), threading.Event()
        self._say(f"{welcome.device} at {address}, fetching the drafter")

        def note(held: int) -> None:
            share = f"{held / welcome.file_bytes:.0%}"
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._say, f"{welcome.device} at {address}, fetching the drafter ({share})")

        opened = partial(open_file, self._access, address, welcome.file)
        try:
            return await asyncio.to_thread(self._cache.file, welcome.file, welcome.file_bytes, opened, abandoned, note)
        finally:
            abandoned.set()

    def _say(self, link: str) -> None:
        if link != self.link:
            self.link = link
            self._changed()

"""Decides whether responses wait for a lost verifier or fail over to another coordinator."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from actors.heartbeats import CoordinatorState
from outrider.contracts.errors import VerifierAwayError, VerifierLostError

_HEARD_TTL_S = 5.0  # older news is not used; the fleet answers a heartbeat every 1 to 3 s
_PROBE_S = 0.3  # time for an answer of a verifier whose process runs


class Peers:
    """Other coordinators by the fleet's last news. All methods run on one event loop."""

    def __init__(self, own: str, clock: Callable[[], float]) -> None:
        """Start without peers; ``own`` is this coordinator's id, ``clock`` monotonic, in seconds."""
        self._own, self._clock = own, clock
        self.target = ""  # only coordinators of the same target can resume responses; "": not known yet
        self._ready: dict[str, tuple[str, float]] = {}  # others whose verifier is ready: its target, and since when
        self._heard_at_s = -inf
        self._news = asyncio.Event()

    def heard(self, changed: Iterable[CoordinatorState] = (), gone: Iterable[str] = (), *, anew: bool = False) -> None:
        """Take in the fleet's news of coordinators; with ``anew`` drop all earlier news first."""
        self._heard_at_s = now_s = self._clock()
        before = self._ready
        if anew:
            self._ready = {}
        for one in changed:
            if one.verifier != "ready" or one.id == self._own:
                self._ready.pop(one.id, None)
            else:
                target, since_s = before.get(one.id, ("", now_s))
                self._ready[one.id] = one.target, since_s if target == one.target else now_s
        for name in gone:
            self._ready.pop(name, None)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def ready(self, after_s: float = -inf) -> bool:
        """Return whether another coordinator's verifier is ready, and became so after ``after_s``."""
        if self._clock() - self._heard_at_s > _HEARD_TTL_S:
            return False
        return any(target == self.target and since_s > after_s for target, since_s in self._ready.values())

    async def come(self, after_s: float) -> None:
        """Wait until another coordinator's verifier becomes ready; without a deadline."""
        while not self.ready(after_s):
            await self._news.wait()  # ``heard`` replaces the event, so each wait is for later news


class Waited(Protocol):
    @property
    def is_up(self) -> bool:
        """Whether the verifier answers, by its last answer or error."""
        ...

    async def wait_until_up(self) -> None:
        """Return once the verifier answers."""
        ...


class FailoverTargets:
    """Where a response may fail over to. ``settled_at_s``: time after which a peer must have become ready to count."""

    def __init__(self, verifier: Waited, peers: Peers | None) -> None:
        """Without ``peers`` responses never fail over."""
        self._verifier, self._peers = verifier, peers

    def check(self, settled_at_s: float) -> None:
        """Refuse to begin a response here that another coordinator can begin at once."""
        if not self._verifier.is_up and self._peers is not None and self._peers.ready(settled_at_s):
            raise VerifierAwayError("needs a verifier that answers, found it restarting; another coordinator has one")

    async def verifier_answers(self, settled_at_s: float, stays: Callable[[], bool] = lambda: False) -> None:
        """Return once the verifier answers, if it was lost.

        A response that ``stays`` is not handed on: it may have crashed the verifier, and would crash the next one.

        Raises:
            VerifierLostError: the verifier is gone, or another coordinator is ready sooner and takes the response.
        """
        answers = asyncio.ensure_future(self._verifier.wait_until_up())
        try:
            if self._verifier.is_up:  # its process may be well although a step failed: give it a moment to answer
                await asyncio.wait((answers,), timeout=_PROBE_S)
            if not answers.done() and self._peers is not None and not stays():
                elsewhere = asyncio.ensure_future(self._peers.come(settled_at_s))
                try:
                    await asyncio.wait((answers, elsewhere), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    elsewhere.cancel()
                if not answers.done():
                    raise VerifierLostError("the verifier restarts; the response is handed to another coordinator")
            await answers
        finally:
            answers.cancel()

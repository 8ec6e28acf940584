"""Where responses go on while their verifier loads its model again: there, or at a coordinator that has one."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from actors.heartbeats import CoordinatorState
from outrider.contracts.errors import VerifierAwayError, VerifierLostError

_HEARD_TTL_S = 5.0  # the fleet tells every second
_PROBE_S = 0.3  # in which a verifier whose process runs is to answer


class Peers:
    """Other coordinators, as the fleet told of them last. All methods run on one event loop."""

    def __init__(self, own: str, clock: Callable[[], float]) -> None:
        """Know of nobody; ``own`` is the id that is not meant, ``clock`` monotonic, in seconds."""
        self._own, self._clock = own, clock
        self.target = ""  # only who has the same can go on with what was begun here; "": not known yet
        self._targets: dict[str, str] = {}  # of others whose verifier is ready
        self._ready_since_s: dict[str, float] = {}
        self._heard_at_s = -inf
        self._news = asyncio.Event()

    def heard(self, changed: Iterable[CoordinatorState] = (), gone: Iterable[str] = (), *, anew: bool = False) -> None:
        """What the fleet says has changed of all coordinators; ``anew``: nobody is there but who is named now."""
        self._heard_at_s = now_s = self._clock()
        targets, since_s = self._targets, self._ready_since_s
        if anew:
            self._targets, self._ready_since_s = {}, {}
        for one in changed:
            if one.verifier != "ready" or one.id == self._own:
                self._forget(one.id)
            else:
                was_ready = targets.get(one.id) == one.target
                self._ready_since_s[one.id] = since_s[one.id] if was_ready else now_s
                self._targets[one.id] = one.target
        for name in gone:
            self._forget(name)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _forget(self, name: str) -> None:
        self._targets.pop(name, None)
        self._ready_since_s.pop(name, None)

    def ready(self, after_s: float = -inf) -> bool:
        """Whether the verifier of another one is ready, and was not yet at ``after_s``."""
        if self._clock() - self._heard_at_s > _HEARD_TTL_S:
            return False
        since_s = self._ready_since_s
        return any(since_s[name] > after_s for name, target in self._targets.items() if target == self.target)

    async def come(self, after_s: float) -> None:
        """Wait until one is."""
        while not self.ready(after_s):
            await self._news.wait()


class Waited(Protocol):
    """A verifier that may be lost."""

    @property
    def is_up(self) -> bool:
        """Whether it answers, as far as is known."""
        ...

    async def answers(self) -> None:
        """Return once it answers, if it was lost.

        Raises:
            VerifierLostError: it is gone.
        """
        ...


class FailoverTargets:
    """Of one coordinator's responses."""

    def __init__(self, verifier: Waited, peers: Peers | None, clock: Callable[[], float]) -> None:
        """Without ``peers`` they stay."""
        self._verifier, self._peers, self._clock = verifier, peers, clock

    def settled_at_s(self, *, nobody_else: bool) -> float:
        """Until when others that were ready do not count: until now, for a response that was sent here from them."""
        return self._clock() if nobody_else else -inf

    def check(self, settled_at_s: float) -> None:
        """Begin nothing here that another coordinator can begin at once.

        Raises:
            VerifierAwayError: the verifier is away, and another's is not.
        """
        if not self._verifier.is_up and self._peers is not None and self._peers.ready(settled_at_s):
            raise VerifierAwayError("needs a verifier that answers, found it restarting; another coordinator has one")

    async def verifier_answers(self, settled_at_s: float, stays: Callable[[], bool] = lambda: False) -> None:
        """Return once the verifier answers, if it was lost.

        A response that ``stays`` is not handed on: it may have cost the verifier its process, and would the next one.

        Raises:
            VerifierLostError: it is gone, or another coordinator goes on sooner: the response is handed back.
        """
        answers = asyncio.ensure_future(self._verifier.answers())
        try:
            if self._verifier.is_up:  # only a step has failed, as far as is known
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

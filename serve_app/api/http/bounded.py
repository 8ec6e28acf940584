"""Limits of requests and bodies that an ingress handles at a time, fair between accounts.

A request takes a place only once its body has arrived, so a slow sender blocks nobody. Arriving bodies are bounded per
account (a key, or a client's address) in number and bytes. An account's share of the places follows from those free
(dynamic thresholds, Choudhury and Hahne 1998): a single account gets 8/9 of all, two get 8/17 each, and a new one is
admitted beside any number of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contracts.errors import BusyError
from serve_app.api.gateways.probes import LIVE

_READS = frozenset({"GET", "HEAD"})
_OF_FREE = 8  # an account may hold this many times the number of free places
_PROBES = frozenset(LIVE)  # always admitted: they show that the process works, and cost next to nothing


class Bodies:
    """Arriving and unread bodies of one ingress. Only a body that alone is larger may exceed ``most_bytes``."""

    most, most_bytes = 1000, 512 * 2**20
    most_of_account, most_bytes_of_account = 64, 64 * 2**20

    def __init__(self) -> None:
        self._number, self._bytes = Counter[str](), Counter[str]()

    @contextmanager
    def coming(self, account: str) -> Iterator[None]:
        """Count a body while it arrives; account ``""`` stands for many clients and has only the limit of all."""
        if account and self._number[account] >= self.most_of_account:
            raise BusyError(f"needs fewer than {self.most_of_account} arriving bodies of one client")
        if self._number.total() >= self.most:
            raise BusyError(f"needs fewer than {self.most} arriving bodies")
        self._number[account] += 1
        try:
            yield
        finally:
            self._number[account] -= 1
            if not self._number[account]:
                del self._number[account]

    @contextmanager
    def held(self, account: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts so many more bytes of a body, until the body has been read.

        It raises ``BusyError`` if they are too many together with other bodies.
        """
        own = 0

        def add(part_bytes: int) -> None:
            nonlocal own
            self._bytes[account] += part_bytes
            own += part_bytes
            held, all_held = self._bytes[account], self._bytes.total()
            too_much_of_one = account and own < held > self.most_bytes_of_account
            if too_much_of_one or own < all_held > self.most_bytes:
                raise BusyError(f"needs fewer bytes of bodies to read, found {held} of one client, {all_held} of all")

        try:
            yield add
        finally:
            self._bytes[account] -= own
            if not self._bytes[account]:
                del self._bytes[account]


class Bounded:
    """Admits a number of requests, and of reads, at a time; refuses more at once."""

    def __init__(self, app: ASGIApp, *, most: int, most_reads: int = 64) -> None:
        self._app, self._most, self._most_reads = app, most, most_reads
        self._under_way = self._reads = 0
        self._held = Counter[str]()  # by account
        self.bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request. Handlers with a body find its ``Intake`` in the state, as ``intake``."""
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
        elif scope["method"] in _READS:
            if self._reads >= self._most_reads:
                raise BusyError(f"needs fewer than {self._most_reads} reads under way")
            self._reads += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._reads -= 1
        else:
            intake = scope.setdefault("state", {})["intake"] = Intake(self)
            try:
                await self._app(scope, receive, send)
            finally:
                if intake.account is not None:
                    self._give_back(intake.account)

    def take_place(self, account: str) -> None:
        """Take a place for one more request, unless all, or this account's share of them, are taken."""
        free, held = self._most - self._under_way, self._held[account]
        if free <= 0:
            raise BusyError(f"needs a free place, found all {self._most} of this server taken")
        if held >= _OF_FREE * free:
            raise BusyError(f"needs a free place, found {held} taken by this key or address, the rest kept for others")
        self._under_way += 1
        self._held[account] += 1

    def _give_back(self, account: str) -> None:
        self._under_way -= 1
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]


class Intake:
    """Admission of one request: its body arrives first, then it takes a place until it ends."""

    def __init__(self, bounded: Bounded) -> None:
        self._bounded = bounded
        self.bodies = bounded.bodies
        self.account: str | None = None  # that holds its place, if any

    def take_place(self, account: str) -> None:
        self._bounded.take_place(account)
        self.account = account

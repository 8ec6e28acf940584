"""A verifier's calls, in the order in which they were made: Ray may deliver a small one before a large one."""

from actors.messages import VerifyCall


class CallReorderBuffer:
    """Not thread-safe. Those of an earlier session than the newest are no longer meant."""

    def __init__(self) -> None:
        """Empty, before any session."""
        self._session, self._next = -1, 0
        self._early: dict[int, VerifyCall] = {}
        self._ready: list[VerifyCall] = []

    def put(self, call: VerifyCall) -> None:
        """A call arrived; it is kept until those before it have."""
        if call.session < self._session:
            return
        if call.session > self._session:
            self._session, self._next, self._early = call.session, 0, {}
        self._early[call.number] = call
        while (following := self._early.pop(self._next, None)) is not None:
            self._ready.append(following)
            self._next += 1

    def take(self) -> list[VerifyCall]:
        """All whose turn it is."""
        ready, self._ready = self._ready, []
        return ready

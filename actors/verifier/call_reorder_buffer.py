"""Restores the order of a verifier's calls: Ray may deliver a small call before an earlier large one."""

from actors.messages import VerifyCall


class CallReorderBuffer:
    """Calls of the newest session by number; calls of earlier sessions are dropped. Not thread-safe."""

    def __init__(self) -> None:
        self._session, self._next = -1, 0
        self._early: dict[int, VerifyCall] = {}
        self._ready: list[VerifyCall] = []

    def put(self, call: VerifyCall) -> None:
        """Add a call that arrived; it is held until all before it have arrived."""
        if call.session < self._session:
            return
        if call.session > self._session:
            self._session, self._next, self._early = call.session, 0, {}
        self._early[call.number] = call
        while (following := self._early.pop(self._next, None)) is not None:
            self._ready.append(following)
            self._next += 1

    def take(self) -> list[VerifyCall]:
        ready, self._ready = self._ready, []
        return ready

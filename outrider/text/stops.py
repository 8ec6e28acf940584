"""Stop strings: where they cut a text, and which tokens have one in their own text."""

from collections.abc import Sequence


def tokens_that_stop(token_texts: Sequence[str], stop: Sequence[str]) -> tuple[int, ...]:
    """Tokens whose own text, of ``token_texts`` by id, has a stop string in it: they end a response anywhere."""
    if not stop:
        return ()
    return tuple(i for i, text in enumerate(token_texts) if any(string in text for string in stop))


class StopMatcher:
    """Cuts text at the first stop string, whichever way the text is split.

    The match that ends first wins; of those that end together, the longest. No stop string is empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""  # the longest suffix so far that a stop string may begin with
        self.stopped = False

    def push(self, text: str) -> str:
        """Take the next text, return what may be shown; nothing more once ``stopped``."""
        if self.stopped:
            return ""
        if not self._stop:
            return text
        text = self._held + text
        matches = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if matches:
            self.stopped, self._held = True, ""
            return text[: min(matches)[1]]
        shown = len(text) - max((_begun(stop, text) for stop in self._stop), default=0)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """The text still held: no more follows, so it is no stop string."""
        held, self._held = self._held, ""
        return held


def _begun(stop: str, text: str) -> int:
    """Length of the longest proper prefix of ``stop`` that ``text`` ends with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)

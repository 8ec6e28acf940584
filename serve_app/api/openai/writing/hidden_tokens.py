"""Which stop string ended a response: it is in the text of the tokens that are not shown."""

from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.text.stops import stop_automaton
from outrider.text.tokens import TokenTable


class HiddenTokens:
    """The last tokens of a response that has stop strings: those whose text is not, or not all, shown."""

    def __init__(self, request: GenerationRequest, table: TokenTable) -> None:
        self._stop, self._table, self._special = request.stop, table, request.special_text
        self._ids = list[int]()
        self._shown_tokens = 0

    def add(self, chunk: GenerationChunk) -> None:
        self._ids += chunk.token_ids
        del self._ids[: chunk.shown_tokens - self._shown_tokens]
        self._shown_tokens = chunk.shown_tokens

    def stop_string(self) -> str | None:
        """The stop string that ended the response, once all its tokens were added; None if another token did."""
        text = b"".join(map(self._spelled, self._ids)).decode(errors="replace")
        _, end, length = stop_automaton(self._stop).scan(0, text)
        return text[end - length : end] if length else None

    def _spelled(self, token_id: int) -> bytes:
        if (special := self._table.special(token_id)) is not None:
            return special.encode() if self._special else b""
        return self._table.data(token_id) or b""

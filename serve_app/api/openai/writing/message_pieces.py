"""Pieces of a message with the scores of their tokens."""

from collections import deque

from serve_app.answers import MessageDelta
from serve_app.api.openai.tools.deltas import MessageDeltas, PlacedDelta
from serve_app.api.openai.writing.choice_reader import ChoiceDelta, ShownToken

ScoredPiece = tuple[MessageDelta, tuple[ShownToken, ...]]


class MessagePieces:
    """Reads one choice whose text has more in it than the answer."""

    def __init__(self, message: MessageDeltas, *, of_texts: bool) -> None:
        """``of_texts``: scores come with the text that their tokens are of, those of reasoning and calls not at all.

        Else all tokens' scores come, with the first piece of what they came with, as OpenAI's chats have it.
        """
        self._message = message
        self._of_texts = of_texts
        self._unsaid = deque[ShownToken]()  # scored, and in no piece yet
        self._read = self._said = 0  # in characters of the choice's text: ends of what was read, and of what was told
        self._marks = set[int]()  # tokens that have no text

    @property
    def called(self) -> bool:
        return self._message.called

    @property
    def thinking(self) -> bool:
        """Whether reasoning has begun and not ended."""
        return self._message.thinking

    @property
    def thought(self) -> bool:
        return self._message.thought

    @property
    def held_tokens(self) -> int:
        """Scored tokens in no piece yet: those of text that may be a call come all at once."""
        return len(self._unsaid)

    def push(self, delta: ChoiceDelta) -> list[ScoredPiece]:
        """Return the pieces that a piece of the choice completes."""
        pieces = self._message.push(delta.text, delta.tags)
        if not self._of_texts:
            nothing: MessageDelta = {} if self._message.thinking else {"content": ""}
            found = [piece for piece, _ in pieces] or ([nothing] if delta.tokens else [])
            return [(piece, () if i else delta.tokens) for i, piece in enumerate(found)]
        self._marks |= {tag.token_id for tag in delta.tags if tag.begin == tag.end}
        self._unsaid += (token for token in delta.tokens if token.token_id not in self._marks)
        # A possible beginning of a stop string may have been held back, while the beginning of its token was told.
        late = self._tokens_of(0, self._said)
        scored: list[ScoredPiece] = [({"content": ""}, late)] if late else []
        scored += map(self._scored, pieces)
        if pieces and pieces[-1][1] is None:  # all text before this was of reasoning or of calls, but for what was told
            while self._unsaid and _end_of(self._unsaid[0]) <= self._read:
                self._unsaid.popleft()
        self._read += len(delta.text)
        return scored

    def finish(self) -> list[ScoredPiece]:
        """Return the held pieces."""
        return [self._scored(piece) for piece in self._message.finish()]

    def _scored(self, piece: PlacedDelta) -> ScoredPiece:
        delta, place = piece
        if place is None:
            return delta, ()
        self._said = place[1]
        return delta, self._tokens_of(*place)

    def _tokens_of(self, begin: int, end: int) -> tuple[ShownToken, ...]:
        """Take the tokens up to ``end``; return those that have text behind ``begin``."""
        tokens = list[ShownToken]()
        while self._unsaid and self._unsaid[0].text_offset < end:
            token = self._unsaid.popleft()
            if _end_of(token) > begin:
                tokens.append(token)
        return tuple(tokens)


def _end_of(token: ShownToken) -> int:
    """Behind a token's text; a part of a character is of the character."""
    return max(token.text_end, token.text_offset + 1)

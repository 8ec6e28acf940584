"""Pieces of a message with the scores of their tokens."""

from collections.abc import Iterator

from serve_app.answers import MessageDelta
from serve_app.api.openai.tools.deltas import MessageDeltas
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
        self._at = 0  # characters of the choice's text that were read
        self._text, self._unsaid = "", list[tuple[int, int, ShownToken]]()  # scored, and in no piece yet
        self._goes_on = True  # whether nothing but text has come since the last text
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
        if not self._of_texts:
            pieces = self._message.push(delta.text, delta.tags)
            nothing: MessageDelta = {} if self._message.thinking else {"content": ""}
            found = pieces or ([nothing] if delta.tokens else [])
            return [(piece, () if i else delta.tokens) for i, piece in enumerate(found)]
        self._marks |= {tag.token_id for tag in delta.tags if tag.begin == tag.end}
        return [piece for part in _by_token(delta, self._at) for piece in self._scored(part)]

    def finish(self) -> list[ScoredPiece]:
        """Return the held pieces."""
        return [self._with_scores(piece) for piece in self._message.finish()]

    def _scored(self, part: ChoiceDelta) -> list[ScoredPiece]:
        self._at += len(part.text)
        if part.tokens or self._unsaid:
            begin, self._text = len(self._text), self._text + part.text
            own = (token for token in part.tokens if token.token_id not in self._marks)
            self._unsaid += [(begin, len(self._text), token) for token in own]
        return [self._with_scores(piece) for piece in self._message.push(part.text, part.tags)]

    def _with_scores(self, piece: MessageDelta) -> ScoredPiece:
        """A piece with the tokens of its text, if it is one; those before it were of something else."""
        said, unsaid = piece.get("content"), self._unsaid
        if said is None or not unsaid:
            self._text, self._unsaid, self._goes_on = "", [], said is not None
            return piece, ()
        if said not in self._text:
            said = said.removeprefix("\n")  # of a line that the model did not begin itself
        # What is behind it may repeat it; so may what is before it, which a call has left.
        begin = 0 if self._goes_on and self._text.startswith(said) else self._text.rfind(said)
        self._goes_on = True
        begin, end = (0, len(self._text)) if begin < 0 else (begin, begin + len(said))
        tokens = tuple(
            token for low, high, token in unsaid if (low < end and high > begin) or begin <= low == high <= end
        )
        self._text = self._text[end:]
        self._unsaid = [(low - end, high - end, token) for low, high, token in unsaid if low >= end and high > end]
        return piece, tokens


def _by_token(delta: ChoiceDelta, begin: int) -> Iterator[ChoiceDelta]:
    """Divide a piece that begins at this character, so that what is read does not depend on how many came at once."""
    if len(delta.tokens) < 2:
        yield delta
        return
    ends = [*(max(token.text_offset - begin, 0) for token in delta.tokens[1:]), len(delta.text)]
    at, tags = 0, list(delta.tags)
    for token, end in zip(delta.tokens, ends, strict=True):
        passed = sum(tag.end <= begin + end for tag in tags) if end < len(delta.text) else len(tags)
        yield ChoiceDelta(delta.text[at:end], tokens=(token,), tags=tuple(tags[:passed]))
        del tags[:passed]
        at = max(at, end)

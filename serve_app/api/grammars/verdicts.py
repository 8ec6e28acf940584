"""Cache of verdicts on recently validated grammars, bounded in bytes."""

from collections import OrderedDict
from hashlib import sha256

from outrider.grammar.validating import GrammarSource, GrammarVerdict

_ENTRY_BYTES = 1_000  # size of Python's objects around an entry's texts


def key_of(account: str, source: GrammarSource) -> bytes:
    """Key of an account's source by content. Includes the account: a cached verdict reveals that somebody sent it."""
    parts = (account, source.kind, source.text, str(source.flexible), repr(source.whitespace_pattern))
    digest = sha256()
    for part in parts:
        content = part.encode(errors="surrogatepass")
        digest.update(len(content).to_bytes(8) + content)
    return digest.digest()


class VerdictCache:
    """Evicts the least recently used verdicts first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._verdicts: OrderedDict[bytes, GrammarVerdict] = OrderedDict()
        self.used_bytes = 0

    def get(self, key: bytes) -> GrammarVerdict | None:
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: bytes, verdict: GrammarVerdict) -> None:
        if (known := self._verdicts.pop(key, None)) is not None:
            self.used_bytes -= _size_bytes(known)
        self._verdicts[key] = verdict
        self.used_bytes += _size_bytes(verdict)
        while self.used_bytes > self._max_bytes:
            _, forgotten = self._verdicts.popitem(last=False)
            self.used_bytes -= _size_bytes(forgotten)


def _size_bytes(verdict: GrammarVerdict) -> int:
    texts = (verdict.text, verdict.fault, verdict.needed, str(verdict.found))
    return _ENTRY_BYTES + sum(len(text) * _char_bytes(text) for text in texts)


def _char_bytes(text: str) -> int:
    """Bytes that CPython uses per character."""
    return 1 if text.isascii() else 4

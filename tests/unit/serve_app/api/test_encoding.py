"""Texts that are far too long are refused piece by piece: no encoding of them has far more tokens than are allowed."""

import pytest

from outrider.text.tokens import backend_of
from serve_app.api.openai import encoding
from serve_app.api.openai.encoding import encode_bounded
from tests.unit.serve_app.api.text_service import TOKENIZER

BACKEND = backend_of(TOKENIZER)
PIECES = ["1: 2,", "a ", "\N{FOX FACE}", "\U0002f800", "\u0f40", "word "]


@pytest.mark.parametrize("piece", PIECES)
def test_no_encoding_is_much_larger_than_what_is_allowed(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()
    honestly = encoding._encode  # noqa: SLF001 (what is bounded)

    def counted(*args: object, **options: bool) -> list[int]:
        ids = honestly(*args, **options)  # type: ignore[arg-type]
        sizes.append(len(ids))
        return ids

    monkeypatch.setattr(encoding, "_encode", counted)
    most = 70_000
    for chars in (60_000, 139_000, 500_000):
        text = (piece * chars)[:chars]
        found = encode_bounded(text, BACKEND, most, add_special_tokens=False)
        whole = len(BACKEND.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        assert max(sizes) <= most * 5 // 4 + 2**10
        assert found > most if isinstance(found, int) else len(found) == whole
        assert isinstance(found, list) or whole > most


@pytest.mark.parametrize("special", [True, False])
def test_cuts_change_no_ids(special: bool) -> None:
    text = "The quick brown fox; \N{FOX FACE} antidisestablishmentarianism. " * 4000
    expected = BACKEND.encode_batch_fast([text], add_special_tokens=special)[0].ids
    assert encode_bounded(text, BACKEND, len(expected), add_special_tokens=special) == expected

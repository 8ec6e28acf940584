"""Both decoders against the tokenizer's own ``decode`` of everything: a byte-level one, and one with byte fallback."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from outrider.models.tokenizer import load_tokenizer
from outrider.text.decoding import REPLACEMENT, AnyDecoder, ByteLevelDecoder, TextDecoder, text_decoder
from outrider.text.tokens import TokenTable, backend_of

BYTE_LEVEL = backend_of(load_tokenizer("smollm2-135m-instruct"))
TABLE = TokenTable(BYTE_LEVEL)
SPECIAL = 1
WORDS = ("▁", "▁the", "cat", "a", "é", "▁x")


def byte_fallback() -> Tokenizer:
    """Like Llama 2's: words with a leading blank, and one token per byte."""
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    vocab = {name: id_ for id_, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))  # noqa: S106 (no password)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return tokenizer


FALLBACK = byte_fallback()
FIRST_WORD = 258


def bytes_of(data: bytes) -> list[int]:
    return [2 + byte for byte in data]


def decode(backend: Tokenizer, ids: Sequence[int]) -> str:
    text: str = backend.decode(list(ids), skip_special_tokens=True)
    return text


def read(decoder: TextDecoder, ids: Sequence[int]) -> str:
    return "".join(map(decoder.push, ids)) + decoder.finish()


def byte_token(byte: int) -> int:
    """The byte-level token of one byte."""
    return next(id_ for id_ in range(BYTE_LEVEL.get_vocab_size()) if TABLE.data(id_) == bytes([byte]))


BYTES = [0x20, 0x41, 0xC3, 0xA9, 0x80, 0xBF, 0xE6, 0xBC, 0xA2, 0xED, 0xA0, 0xEF, 0xBD, 0xF0, 0x9F, 0x91]


def test_each_tokenizer_gets_its_decoder() -> None:
    assert isinstance(text_decoder(BYTE_LEVEL), ByteLevelDecoder)
    assert isinstance(text_decoder(FALLBACK), AnyDecoder)


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() + 5) | st.integers(0, 400), max_size=30))
def test_byte_level_text_and_ends_are_those_of_every_prefix(ids: list[int]) -> None:
    decoder, shown = text_decoder(BYTE_LEVEL), ""
    for count, id_ in enumerate(ids, start=1):
        shown += decoder.push(id_)
        whole = decode(BYTE_LEVEL, ids[:count])
        assert whole.startswith(shown)
        assert whole[len(shown) :] in ("", REPLACEMENT, REPLACEMENT * 2)  # held: an incomplete character, a surrogate
    assert list(decoder.ends) == [len(decode(BYTE_LEVEL, ids[: count + 1])) for count in range(len(ids))]
    assert shown + decoder.finish() == decode(BYTE_LEVEL, ids)


@pytest.fixture(scope="module")
def token_of_byte() -> dict[int, int]:
    return {byte: byte_token(byte) for byte in BYTES}


@given(data=st.lists(st.sampled_from(BYTES), max_size=12))
@example(data=[0xED, 0xA0, 0x80])  # a surrogate
@example(data=[0xEF, 0xBF, 0xBD])  # U+FFFD itself
@example(data=[0xF0, 0x80, 0x80])  # overlong
def test_any_bytes_become_what_the_tokenizer_makes_of_them(token_of_byte: dict[int, int], data: list[int]) -> None:
    ids = [token_of_byte[byte] for byte in data]
    decoder = text_decoder(BYTE_LEVEL)
    assert read(decoder, ids) == decode(BYTE_LEVEL, ids)
    assert list(decoder.ends) == [len(decode(BYTE_LEVEL, ids[: count + 1])) for count in range(len(ids))]


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1) | st.integers(0, 400), max_size=30))
def test_the_general_decoder_reads_byte_level_tokens_too(ids: list[int]) -> None:
    decoder = AnyDecoder(BYTE_LEVEL, TABLE)
    assert read(decoder, ids) == decode(BYTE_LEVEL, ids)
    assert len(decoder.ends) == len(ids)


fallback_ids = st.lists(
    st.one_of(
        st.sampled_from(range(FIRST_WORD, FIRST_WORD + len(WORDS))).map(lambda id_: [id_]),
        st.sampled_from("é漢👩 x").map(lambda character: bytes_of(character.encode())),
        st.just([SPECIAL]),
    ),
    max_size=12,
).map(lambda groups: [id_ for group in groups for id_ in group])


@given(fallback_ids, st.integers(0, 3))
def test_byte_fallback_shows_characters_once_they_are_complete(ids: list[int], cut: int) -> None:
    ids = ids[: len(ids) - cut]  # the last character may lack bytes
    decoder, shown = text_decoder(FALLBACK), ""
    for id_ in ids:
        shown += decoder.push(id_)
        assert REPLACEMENT not in shown
    rest = decoder.finish()
    # At its end an incomplete character makes the whole run of bytes invalid; what is out is not taken back.
    assume(REPLACEMENT not in rest)
    assert shown + rest == decode(FALLBACK, ids)
    assert len(decoder.ends) == len(ids)
    assert list(decoder.ends) == sorted(decoder.ends)
    assert not ids or decoder.ends[-1] == len(shown + rest)


def test_a_special_token_counts_at_once_unless_a_character_is_open() -> None:
    decoder = text_decoder(FALLBACK)
    first, second, third = bytes_of("漢".encode())
    ends = []
    for id_ in (SPECIAL, FIRST_WORD + 1, SPECIAL, first, SPECIAL, second, third):
        decoder.push(id_)
        ends.append(list(decoder.ends))
    assert ends == [[0], [0, 3], [0, 3, 3], [0, 3, 3], [0, 3, 3], [0, 3, 3], [0, 3, 3, 4, 4, 4, 4]]


def test_invalid_bytes_behind_valid_ones_break_no_response() -> None:
    """The tokenizer takes the whole run for invalid then; what is out stays, and the text goes on."""
    decoder = text_decoder(FALLBACK)
    ids = [*bytes_of("漢".encode()), *bytes_of(b"\xff"), FIRST_WORD + 1, FIRST_WORD + 2]
    text = read(decoder, ids)
    assert text.startswith("漢")
    assert text.endswith(" thecat")
    assert len(decoder.ends) == len(ids)


def test_bytes_that_never_become_a_character_do_not_wait_for_ever() -> None:
    """A bias may force one byte again and again; each token's cost is that of those that wait."""
    decoder, byte = text_decoder(FALLBACK), FALLBACK.token_to_id("<0xE2>")
    assert byte is not None
    shown = 0
    for pushed in range(1, 1001):
        shown += len(decoder.push(byte))
        assert pushed - shown < 64
    assert shown + len(decoder.finish()) == 1000

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece
from tokenizers.models import BPE, WordLevel

from outrider.text.tokens import TextOffsets, TokenTable, backend_of
from tests.unit.serve_app.api.text_service import TOKENIZER

BACKEND = backend_of(TOKENIZER)
TABLE = TokenTable(BACKEND)
FOX = TOKENIZER.encode("a 🦊 漢!")


def sentencepiece() -> Tokenizer:
    """Llama 2's kind: words begin with a mark, other bytes are tokens of their own."""
    vocabulary = {"<s>": 0, "▁Hello": 1, "▁you": 2, "r": 3} | {f"<0x{byte:02X}>": 4 + byte for byte in range(256)}
    backend = Tokenizer(BPE(vocabulary, [], byte_fallback=True))
    backend.decoder = Sequence([Replace("▁", " "), ByteFallback(), Fuse(), Strip(" ", 1, 0)])
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    return backend


@given(st.text(max_size=40))
def test_the_bytes_of_tokens_are_those_of_the_text(text: str) -> None:
    ids = BACKEND.encode(text, add_special_tokens=False).ids
    ordinary = [token_id for token_id in ids if TABLE.special(token_id) is None]
    data = b"".join(TABLE.data(token_id) or b"" for token_id in ids)
    # The vocabulary lacks some bytes that begin characters nobody uses.
    assert data.decode(errors="replace") == BACKEND.decode(ordinary, skip_special_tokens=False)


def test_every_token_has_bytes_and_a_name_and_no_two_the_same_name() -> None:
    names = [TABLE.name(token_id) for token_id in range(len(TOKENIZER))]
    assert len(set(names)) == len(names)
    empty = [token_id for token_id in range(len(TOKENIZER)) if not TABLE.data(token_id)]
    assert all(TABLE.special(token_id) is not None for token_id in empty)


def test_parts_of_a_character_are_named_by_their_bytes() -> None:
    assert [TABLE.name(token_id) for token_id in FOX] == [
        "a",
        r"bytes:\x20\xf0\x9f",
        r"bytes:\xa6",
        r"bytes:\x8a",
        r"bytes:\x20\xe6",
        r"bytes:\xbc",
        r"bytes:\xa2",
        "!",
    ]
    assert TABLE.data(FOX[1]) == b" \xf0\x9f"


def test_special_tokens_have_a_name_and_no_bytes() -> None:
    assert (TABLE.name(2), TABLE.data(2), TABLE.special(2)) == ("<|im_end|>", b"", "<|im_end|>")


def test_an_output_without_a_token_has_no_bytes() -> None:
    assert (TABLE.name(10**6), TABLE.data(10**6)) == ("<|no token 1000000|>", None)


def test_sentencepiece_falls_back_to_bytes_and_marks_words() -> None:
    table = TokenTable(sentencepiece())
    fox = [4 + byte for byte in "🦊".encode()]
    assert [table.data(token_id) for token_id in (1, 2, 3, fox[0])] == [b" Hello", b" you", b"r", b"\xf0"]
    assert [table.name(token_id) for token_id in (0, 2, 4 + ord("\n"), fox[3])] == ["<s>", " you", "\n", r"bytes:\x8a"]
    offsets = TextOffsets(table)
    text = "Hello your 🦊"
    ids = [1, 2, 3, 4 + ord(" "), *fox]
    assert sentencepiece().decode(ids) == text
    assert [offsets.next(token_id) for token_id in ids] == [0, 5, 9, 10, 11, 11, 11, 11]


@pytest.mark.parametrize(
    ("decoder", "tokens", "data"),
    [
        (Metaspace(), ("▁a", "b"), (b" a", b"b")),
        (WordPiece(), ("a", "##b"), (b" a", b"b")),
        (None, ("a", "b"), (b"a", b"b")),
    ],
)
def test_other_tokenizers_are_asked(
    decoder: Metaspace | WordPiece | None, tokens: tuple[str, ...], data: tuple[bytes, ...]
) -> None:
    backend = Tokenizer(WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=tokens[0]))
    if decoder is not None:
        backend.decoder = decoder
    table = TokenTable(backend)
    assert tuple(table.data(i) for i in range(len(tokens))) == data


def test_offsets_count_characters_and_parts_of_one_begin_where_it_does() -> None:
    offsets = TextOffsets(TABLE, start=100)
    assert [offsets.next(token_id) for token_id in FOX] == [100, 101, 102, 102, 103, 104, 104, 105]


def test_special_tokens_take_room_only_where_they_are_spelled() -> None:
    ids = [2, *TOKENIZER.encode("x<|im_end|> y")]
    spelled = TextOffsets(TABLE, spelled="x<|im_end|> y")
    assert [spelled.next(token_id) for token_id in ids] == [0, 0, 1, 11]
    unspelled = TextOffsets(TABLE)
    assert [unspelled.next(token_id) for token_id in ids] == [0, 0, 1, 1]

"""A file of keys is judged once it has stood still, and near any sound text there is a typed error or none."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.contracts.errors import ConfigError
from outrider.tenants.key_file import KeyFileRead, KeyFileWatch, after_read
from outrider.tenants.keys import decode_keys

KEY = "sk-alice-0123456789"
SOUND = f"""keys:
  - {{name: alice, key: {KEY}, requests_per_minute: 60.0, slo: {{default: slow, allowed: [slow, fast]}}}}
  - name: bob
    sha256: {"5e" * 32}
    concurrent_responses: 8
    drafters: [lab]
""".encode()
ODD = (
    b"2026-13-45",
    b"0x_",
    b"[",
    b"*a",
    b"&a ",
    b"<<: ",
    b"1: 2",
    b"\n\t",
    b"\xff",
    b"!!int ",
    b": ",
    b"- ",
    b"'",
    b"? ",
)


def seen(*reads: tuple[bytes | str, float]) -> list[KeyFileRead]:
    watch, looks = KeyFileWatch(), []
    for content, at_s in reads:
        watch, look = after_read(watch, content, at_s, 1.0)
        looks.append(look)
    return looks


def test_two_equal_reads_a_second_apart_settle() -> None:
    assert seen((b"a", 0.0), (b"a", 0.9), (b"a", 1.0), (b"a", 9.0)) == [
        KeyFileRead.CHANGING,
        KeyFileRead.CHANGING,
        KeyFileRead.SETTLED,
        KeyFileRead.SAME,
    ]


def test_a_file_being_written_is_never_judged() -> None:
    assert set(seen(*((SOUND[:end], float(end)) for end in range(len(SOUND))))) == {KeyFileRead.CHANGING}


def test_a_change_that_is_taken_back_is_none() -> None:
    looks = seen((b"a", 0.0), (b"a", 1.0), (b"b", 2.0), (b"a", 2.5), (b"b", 3.0), (b"b", 3.5))
    assert looks[2:] == [KeyFileRead.CHANGING, KeyFileRead.SAME, KeyFileRead.CHANGING, KeyFileRead.CHANGING]


def test_what_cannot_be_read_is_content_of_its_own() -> None:
    assert seen((b"gone", 0.0), ("gone", 1.0), ("gone", 2.0), (b"gone", 3.0), (b"gone", 4.0)) == [
        KeyFileRead.CHANGING,
        KeyFileRead.CHANGING,
        KeyFileRead.SETTLED,
        KeyFileRead.CHANGING,
        KeyFileRead.SETTLED,
    ]


@st.composite
def near_sound(draw: st.DrawFn) -> bytes:
    """The sound text with a few pieces cut out, doubled, or replaced."""
    text = SOUND
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.integers(0, 12))
        text = text[:at] + draw(st.sampled_from((b"", *ODD)) | st.binary(max_size=3)) + text[at + gone :]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@given(near_sound())
@example(SOUND.replace(b"name: bob", b"name: 2026-13-45"))
@example(b"keys: [{name: alice, key " + KEY.encode() + b"}]")
@example(b"keys: [{name: alice, key: [" + KEY.encode() + b"]}]")
@example(b"keys: [{1: 2}]")
@example(b"keys: {1: 2}")
@example(b"&a [*a]")
def test_near_a_sound_text_there_is_a_typed_error_or_none(text: bytes) -> None:
    told = ""
    try:
        decode_keys(text, "keys.yaml")
    except ConfigError as error:
        told = str(error)
    assert KEY not in told


def test_a_text_that_is_cut_anywhere_raises_nothing_else() -> None:
    for end in range(len(SOUND)):
        try:
            decode_keys(SOUND[:end], "keys.yaml")
        except ConfigError:
            continue


def test_a_key_in_the_wrong_place_is_not_told() -> None:
    with pytest.raises(ConfigError, match="known keys") as told:
        decode_keys(f"keys: [{{name: alice, key {KEY}}}]".encode(), "keys.yaml")
    assert KEY not in str(told.value)

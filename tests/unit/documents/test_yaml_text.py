"""YAML of operators: whatever a text holds, it is read or refused by a typed error of one line, at bounded cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ConfigError
from outrider.documents.yaml_text import MAX_DEPTH, MAX_VALUES, parse_yaml, parse_yaml_documents

_LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
_MERGES = "\n".join(
    ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))]
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 2026-13-45", "line 1: no valid timestamp"),
        ("b: 1\na: 0x_", "line 2: no valid int"),
        ("a: " + "9" * 5000, "a number has more than 100 characters"),
        ("a: " + ":".join(["59"] * 100_000), "a number has more than 100 characters"),
        ("[" * 5000, "nested too deeply"),
        ("{a: " * 5000, "nested too deeply"),
        ("- " * 5000, "nested too deeply"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested too deeply"),
        (_LAUGHS, f"more than {MAX_VALUES:,} values"),
        (_MERGES, f"more than {MAX_VALUES:,} values"),
        ("[" + "a," * (MAX_VALUES + 1) + "]", f"more than {MAX_VALUES:,} values"),
        ("&a [*a]", "an alias stands inside what it repeats"),
        ("&a {b: *a}", "an alias stands inside what it repeats"),
        ('a: "\\U00110000"', "valid YAML"),
        ("a: !!python/object/apply:os.system [x]", "could not determine a constructor"),
        ("{[a]: b}", "unhashable"),
        ("a: 1\na: 2", "a is given twice"),
        ("sk-long-secret: 1\nsk-long-secret: 2", "a key is given twice"),
        ("*sk-a-long-secret", r"found undefined alias '\.\.\.'"),
        ("a: \x00", "special characters are not allowed"),
        ("!!timestamp now", "no valid timestamp"),
        ("!!int x", "no valid int"),
    ],
)
def test_odd_texts_are_refused(text: str, told: str) -> None:
    for parse in (parse_yaml, parse_yaml_documents):
        with pytest.raises(ConfigError, match=told) as error:
            parse(text, "here")
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 1_000


@given(st.text(alphabet=st.sampled_from("ab01:-_.{}[],&*!<~'\"#|>%@? \n\t=xeE+\\\x85")))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_yaml, parse_yaml_documents):
        try:
            parse(text, "here")
        except ConfigError as error:
            lines = str(error).count("\n") + 1
        else:
            lines = 1
        assert lines == 1


def test_aliases_that_stay_small_are_read() -> None:
    assert parse_yaml("a: &a {b: 1}\nc: *a\nd: {<<: *a, e: 2}", "") == {
        "a": {"b": 1},
        "c": {"b": 1},
        "d": {"b": 1, "e": 2},
    }
    assert parse_yaml_documents("a: &a 1\n---\nb: &a 2", "") == [{"a": 1}, {"b": 2}]


def test_what_is_as_deep_as_may_be_is_read() -> None:
    for _ in range(2):
        assert parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH, "here")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.tasks.task import Check, Task
from outrider.contracts.errors import ParameterError

WORDS = st.lists(st.sampled_from(["a1", "b2", "c3", "d4"]), min_size=1, max_size=8)


def task(*parts: str, check: Check = Check.IN_ORDER) -> Task:
    return Task("key", "kind", "prompt", parts, check)


def longest_common_subsequence(first: list[str], second: list[str]) -> int:
    """By its definition: the longest choice of words of the first that the second has in the same order."""
    best = 0
    for chosen in range(2 ** len(first)):
        words = [word for i, word in enumerate(first) if chosen >> i & 1]
        left = iter(second)
        if all(word in left for word in words):
            best = max(best, len(words))
    return best


@given(parts=WORDS, answer=WORDS)
def test_in_order_counts_as_many_parts_as_can_be_had(parts: list[str], answer: list[str]) -> None:
    assert task(*parts).score(" ".join(answer)) == longest_common_subsequence(parts, answer) / len(parts)


@given(parts=WORDS, answer=WORDS)
def test_anywhere_counts_each_part_that_occurs(parts: list[str], answer: list[str]) -> None:
    right = sum(part in answer for part in parts)
    assert task(*parts, check=Check.ANYWHERE).score(" ".join(answer)) == right / len(parts)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Anna: red\nBert: blue\nCarl: green", 1.0),
        ("ANNA:   red\n\n\tbert: Blue carl: green, and that is all", 1.0),
        ("Carl: green\nAnna: red\nBert: blue", 2 / 3),  # one that comes too early costs itself only
        ("Anna: red\nCarl: green\nBert: blue", 2 / 3),  # and so does one that comes too late
        ("Anna: red\n" * 100, 1 / 3),
        ("Anna, Bert and Carl: red, blue, green", 0.0),
        ("", 0.0),
        ("\x00\ufffd\u202e(.*)[a-z]+" * 1000, 0.0),
    ],
)
def test_parts_in_order(answer: str, score: float) -> None:
    assert task("Anna: red", "Bert: blue", "Carl: green").score(answer) == score


def test_a_part_twice_must_occur_twice() -> None:
    assert task("red", "red").score("red") == 0.5
    assert task("a.", ".a").score("a.a") == 0.5


def test_a_part_is_text_and_no_pattern() -> None:
    assert task("a.c", "(x", "[1]").score("abc x 1") == 0.0
    assert task("a.c", "(x", "[1]").score("a.c (x [1]") == 1.0


def test_a_number_is_not_found_within_a_longer_one() -> None:
    assert task("7", "10").score("17, 100") == 0.0
    assert task("7", "10").score("7,10") == 1.0
    assert task("1. soup", check=Check.ANYWHERE).score("11. soup") == 0.0
    assert task("5", check=Check.ANYWHERE).score("5km") == 1.0


def test_a_word_is_not_found_within_another() -> None:
    words = task("car", "hat", "Sam", check=Check.ANYWHERE)
    assert words.score("Carol said that it is all the same") == 0.0
    assert words.score("sam's car, hat") == 1.0


def test_words_without_blanks_between_them_are_found() -> None:
    assert task("北京", "东京").score("首都是北京市和东京都。") == 1.0


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Step 1: 20 + 22 = 42\n#### 42", 1.0),
        ("so it is 42.", 1.0),
        ("$42.00", 1.0),
        ("84-42", 1.0),
        ("42 apples, or 43", 0.0),
        ("-42", 0.0),
        ("142", 0.0),
        ("4,2", 0.0),
        ("forty-two", 0.0),
        ("9" * 1000, 0.0),
        ("", 0.0),
    ],
)
def test_the_last_number(answer: str, score: float) -> None:
    assert task("42", check=Check.LAST_NUMBER).score(answer) == score


def test_numbers_are_compared_by_value() -> None:
    assert task("1,234", check=Check.LAST_NUMBER).score("1234.0") == 1.0
    assert task("-1234", check=Check.LAST_NUMBER).score("it falls to -1,234") == 1.0
    assert task("0.5", check=Check.LAST_NUMBER).score("0.50") == 1.0


@pytest.mark.parametrize("parts", [(), ("",), ("a", " \n")])
def test_a_task_without_parts_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match=r"none of them empty.*of task key"):
        task(*parts)


@pytest.mark.parametrize("parts", [("many",), ("1", "2"), ("1 2",)])
def test_the_last_number_needs_one_number(parts: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match=r"one number for last_number, found.*of task key"):
        task(*parts, check=Check.LAST_NUMBER)

import argparse
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.harness.prompts import KINDS, USUAL_SHARES, mixed, parse_share, prompts_of, shares_of
from outrider.models.folders import EMBEDDED
from outrider.models.tokenizer import load_tokenizer
from outrider.training.traces import prompt_ids


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 200))
def test_at_every_length_shares_are_kept_to_within_one_prompt_or_two(weights: list[int], count: int) -> None:
    shares = {kind: weight / sum(weights) for kind, weight in zip(KINDS, weights, strict=False)}
    found = Counter(one.kind for one in mixed(count, shares))
    assert sum(found.values()) == count
    for kind, share in shares.items():
        assert abs(found[kind] - share * count) < 2


def test_a_longer_mix_begins_with_the_shorter_one() -> None:
    assert mixed(40, USUAL_SHARES)[:13] == mixed(13, USUAL_SHARES)
    assert {one.kind for one in mixed(8, USUAL_SHARES)} == set(KINDS)


def test_prompts_of_a_kind_follow_one_another_and_begin_anew() -> None:
    lists = prompts_of("lists")
    found = mixed(len(lists) + 1, {"lists": 1.0})
    assert [one.text for one in found] == [*lists, lists[0]]


def test_prompts_are_varied_and_of_the_length_that_is_promised() -> None:
    tokenizer = load_tokenizer(EMBEDDED)
    everything = [text for kind in KINDS for text in prompts_of(kind)]
    assert len(set(everything)) == len(everything)
    for kind in KINDS:
        assert len(prompts_of(kind)) >= 8
        for text in prompts_of(kind):
            assert 60 <= len(prompt_ids(tokenizer, text)) <= 400, text


def test_shares_are_of_kinds_and_add_up() -> None:
    assert shares_of([parse_share("chat=0.5"), parse_share("code=0.5")]) == {"chat": 0.5, "code": 0.5}
    for wrong in ("chat", "chat=", "chat=0", "chat=1.5", "poems=0.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="needs KIND=SHARE"):
            parse_share(wrong)
    for pairs in ([("chat", 0.5)], [("chat", 0.5), ("chat", 0.5)]):
        with pytest.raises(ValueError, match=r"shares that add up to 1, found chat=0\.5"):
            shares_of(pairs)

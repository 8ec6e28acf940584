from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lab.bench.harness.mix import KINDS, mixed, prompts_of
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


SHARES = {"chat": 0.4, "extraction": 0.15, "editing": 0.15, "lists": 0.15, "code": 0.15}


def test_a_longer_mix_begins_with_the_shorter_one() -> None:
    assert mixed(40, SHARES)[:13] == mixed(13, SHARES)
    assert {one.kind for one in mixed(8, SHARES)} == set(KINDS)


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

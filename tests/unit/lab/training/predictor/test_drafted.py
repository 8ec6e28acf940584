import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.predictor.drafted import DraftedTokens, part_prompts, split, together
from outrider.contracts.errors import ParameterError

PARTS = ["train", "validation", "calibration", "test"]


def drafted(prompts: int, each: int = 40) -> DraftedTokens:
    count = prompts * each
    numbers = np.arange(count)
    features = np.stack([numbers + shift for shift in range(4)], 1).astype(np.float64)
    return DraftedTokens(features, numbers % 2, np.zeros(count), np.repeat(np.arange(prompts), each))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), min_size=4, max_size=40, unique=True))
def test_every_prompt_is_in_one_part_whatever_the_order(prompts: list[tuple[int, ...]]) -> None:
    parts = part_prompts(prompts)
    assert list(parts) == PARTS
    assert sorted(index for own in parts.values() for index in own) == list(range(len(prompts)))
    assert all(parts.values())
    turned = part_prompts(prompts[::-1])
    for name, own in parts.items():
        assert {prompts[index] for index in own} == {prompts[::-1][index] for index in turned[name]}


def test_shares_are_kept() -> None:
    parts = part_prompts([[number] for number in range(100)])
    assert [len(parts[name]) for name in PARTS] == [60, 15, 10, 15]


def test_a_prompt_s_tokens_stay_together() -> None:
    prompts = [[number] for number in range(20)]
    parts = split(drafted(20), prompts, least_tokens=10)
    own = [set(getattr(parts, name).prompt.tolist()) for name in PARTS]
    assert sorted(index for part in own for index in part) == list(range(20))
    assert together([getattr(parts, name) for name in PARTS]).accepted.sum() == 400
    test = parts.test
    assert np.array_equal(test.features, drafted(20).features[np.isin(drafted(20).prompt, test.prompt)])


def test_too_few_are_counted() -> None:
    prompts = [[number] for number in range(20)]
    with pytest.raises(ParameterError, match=r"prompts needs enough for at least 801 verified.* found 800"):
        split(drafted(20), prompts, least_tokens=801)
    with pytest.raises(ParameterError, match=r"prompts needs at least 4, one for each part, found 3"):
        split(drafted(3), prompts[:3], least_tokens=1)
    with pytest.raises(ParameterError, match="accepted and as many rejected tokens for validation"):
        split(drafted(20, each=6), prompts, least_tokens=1)

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from lab.bench.load.datasets import random_prompts, sharegpt_prompts
from outrider.contracts.errors import ParameterError
from outrider.models.tokenizer import load_tokenizer

WORD = " one"  # a token


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return load_tokenizer("embedded")


def sharegpt(folder: Path, *pairs: tuple[int, int]) -> Path:
    """A file of conversations with so many tokens of prompt and answer, and some that are none."""
    turns = [[{"value": WORD * prompt}, {"value": WORD * answer}, {"value": "more"}] for prompt, answer in pairs]
    file = folder / "sharegpt.json"
    file.write_text(json.dumps([{"conversations": one} for one in turns] + [{}, {"conversations": [{"value": WORD}]}]))
    return file


def test_random_prompts_have_their_lengths(tokenizer: PreTrainedTokenizerBase) -> None:
    bodies = random_prompts(tokenizer, 8, (24, 10), 0.0, seed=1)
    assert [len(tokenizer.encode(str(body["prompt"]))) for body in bodies] == [24] * 8
    assert [body["max_tokens"] for body in bodies] == [10] * 8
    assert len({body["prompt"] for body in bodies}) == 8
    assert bodies == random_prompts(tokenizer, 8, (24, 10), 0.0, seed=1)
    assert bodies != random_prompts(tokenizer, 8, (24, 10), 0.0, seed=2)


def test_random_lengths_are_uniform_within_their_share(tokenizer: PreTrainedTokenizerBase) -> None:
    bodies = random_prompts(tokenizer, 200, (4, 10), 0.5, seed=1)
    rng = np.random.default_rng(1)
    prompts = rng.integers(math.floor(4 * 0.5), math.ceil(4 * 1.5) + 1, size=200)
    answers = rng.integers(math.floor(10 * 0.5), math.ceil(10 * 1.5) + 1, size=200)
    assert [body["max_tokens"] for body in bodies] == list(answers)
    assert {int(found) for found in answers} == set(range(5, 16))
    near = sum(
        len(tokenizer.encode(str(body["prompt"]))) == length for body, length in zip(bodies, prompts, strict=True)
    )
    assert near > 190  # a text that fits is not always found


def test_conversations_of_unusable_lengths_are_left_out(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    usable = [(4, 4), (1024, 1024), (5, 2043)]
    file = sharegpt(tmp_path, *usable, (3, 9), (9, 3), (1025, 9), (1024, 1025))
    bodies = sharegpt_prompts(tokenizer, 3, file, None, seed=0)
    assert sorted((str(body["prompt"]), body["max_tokens"]) for body in bodies) == sorted(
        (WORD * prompt, answer) for prompt, answer in usable
    )


def test_a_given_output_length_replaces_the_answers(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    file = sharegpt(tmp_path, (9, 3), (1024, 1025), (2000, 9))
    bodies = sharegpt_prompts(tokenizer, 2, file, 2, seed=0)
    assert sorted(len(str(body["prompt"])) for body in bodies) == [len(WORD * 9), len(WORD * 1024)]
    assert [body["max_tokens"] for body in bodies] == [2, 2]


def test_conversations_are_shuffled_by_the_seed_and_drawn_again(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    file = sharegpt(tmp_path, *((length, 4) for length in range(4, 10)))
    found = [len(str(body["prompt"])) // len(WORD) for body in sharegpt_prompts(tokenizer, 9, file, None, seed=3)]
    expected = list(range(4, 10))
    random.seed(3)
    random.shuffle(expected)
    random.seed(3)
    expected += [random.choice(expected[:6]) for _ in range(3)]
    assert found == expected


def test_a_dataset_without_a_usable_conversation_is_refused(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="none of 1"):
        sharegpt_prompts(tokenizer, 3, sharegpt(tmp_path, (3, 3)), None, seed=0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ('{"conversations": []}', "a dict"),
        ("[1]", "entry 1, needs"),
        ('[{}, {"conversations": [{"from": "human"}]}]', "entry 2, needs"),
        ('[{"conversations": "text"}]', "entry 1, needs"),
    ],
    ids=["empty", "no list", "no conversation", "no text", "no turns"],
)
def test_a_file_of_another_form_is_refused_by_its_form(
    text: str, found: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=found) as refused:
        sharegpt_prompts(tokenizer, 1, file, None, seed=0)
    assert "needs JSON of ShareGPT" in str(refused.value)

import pytest

from bench.harness.driver import GREEDY, GenerationDriver, RoundFailedError, random_tokens
from outrider.contracts.requests import SamplingParams
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import target_alone

WORDS = random_tokens(3, 40, 8, VOCAB, seed=0)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.8, seed=1)])
def test_a_driver_commits_what_the_target_alone_says(params: SamplingParams) -> None:
    driver = GenerationDriver(torch_verifier(tiny_llama()), params)
    for index, prompt in enumerate(WORDS.prompts):
        driver.open(str(index), prompt)
    for _ in range(3):
        driver.round(dict(zip(driver.tokens, WORDS.drafts, strict=True)))
    for prompt, tokens in zip(WORDS.prompts, driver.tokens.values(), strict=True):
        said = tokens[len(prompt) :]
        assert len(said) >= 3
        assert said == target_alone(tiny_llama(), prompt, params, len(said))


def test_a_generation_without_room_is_no_measurement() -> None:
    driver = GenerationDriver(torch_verifier(tiny_llama(), blocks=12), GREEDY)
    driver.open("one", WORDS.prompts[0])
    with pytest.raises(RoundFailedError, match="needs a decision on one, found Refused"):
        driver.round({"one": tuple(range(20))})


def test_random_tokens_are_the_same_every_time_and_prompts_share_no_block() -> None:
    assert random_tokens(3, 40, 8, VOCAB, seed=0) == WORDS
    assert len({prompt[:BLOCK_TOKENS] for prompt in WORDS.prompts}) == 3
    assert [len(draft) for draft in WORDS.drafts] == [8, 8, 8]

import pytest

from outrider.contracts.requests import SamplingParams
from outrider.costs.batch_runs import UniquePrompts
from outrider.costs.driver import GREEDY, GenerationDriver, RoundFailedError
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import tiny_alone

RANDOM = UniquePrompts(VOCAB, seed=0)
PROMPTS = [RANDOM.take(40) for _ in range(3)]
DRAFTS = [RANDOM.draft(8) for _ in PROMPTS]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.8, seed=1)])
def test_a_driver_commits_what_the_target_alone_says(params: SamplingParams) -> None:
    driver = GenerationDriver(torch_verifier(tiny_llama()), params)
    for index, prompt in enumerate(PROMPTS):
        driver.open(str(index), prompt)
    for _ in range(3):
        driver.round(dict(zip(driver.tokens, DRAFTS, strict=True)))
    for prompt, tokens in zip(PROMPTS, driver.tokens.values(), strict=True):
        said = tokens[len(prompt) :]
        assert len(said) >= 3
        assert said == tiny_alone(prompt, params, len(said))


def test_a_generation_without_room_is_no_measurement() -> None:
    driver = GenerationDriver(torch_verifier(tiny_llama(), blocks=12), GREEDY)
    driver.open("one", PROMPTS[0])
    with pytest.raises(RoundFailedError, match="needs a decision on one, found BlockRefused"):
        driver.round({"one": tuple(range(20))})

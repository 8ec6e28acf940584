import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.engines_alone import alone_sample
from bench.engines_bare import PassRecorder
from bench.engines_beds import Bed, bed_of
from bench.engines_driver import GREEDY, MODES, SAMPLED, Driver, RoundFailedError, random_tokens
from bench.engines_figures import BARE, AloneSample, RoundCell, RoundSample
from bench.engines_rounds import cold_samples, read_samples, warm_samples
from outrider.contracts.verifying import VerifierEngine
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.bench.recorded_tiny import TOKENS, tiny_responses
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import target_alone
from tests.unit.engines.vllm_models import VLLM_MODELS

WARM, COLD = RoundCell(3, 4, 20, warm=True), RoundCell(3, 4, 20, warm=False)
WORDS = random_tokens(3, 40, 8, VOCAB, seed=0)
TORCH_ARMS = ["torch greedy", "torch sampled"]


def vllm_bed() -> Bed:
    recorder = PassRecorder(VLLM_MODELS.started(tiny_llama()))
    engine = PagedVerifier(
        recorder, vocab_size=VOCAB, max_context_tokens=256, prefill_chunk_tokens=16, kept_rows_bytes=2**20
    )
    return bed_of("vllm", engine, recorder)


def arms(samples: Sequence[RoundSample]) -> list[str]:
    assert not [sample.failure for sample in samples if sample.failure]
    assert all(sample.seconds is not None for sample in samples)
    return [sample.arm for sample in samples]


@pytest.mark.parametrize("mode", MODES)
def test_a_driver_commits_what_the_target_alone_says(mode: str) -> None:
    driver = Driver(torch_verifier(tiny_llama()), mode)
    driver.open(WORDS.prompts, WORDS.drafts)
    for _ in range(3):
        driver.round()
    for prompt, tokens in zip(WORDS.prompts, driver.tokens.values(), strict=True):
        said = tokens[len(prompt) :]
        assert len(said) >= 3
        assert said == target_alone(tiny_llama(), prompt, MODES[mode], len(said))


def test_a_generation_without_room_is_no_measurement() -> None:
    driver = Driver(torch_verifier(tiny_llama(), blocks=12), GREEDY)
    driver.open(WORDS.prompts[:1], [tuple(range(20))])
    with pytest.raises(RoundFailedError, match="needs a decision on greedy 0, found Refused"):
        driver.round()


def test_random_tokens_are_the_same_every_time_and_prompts_share_no_block() -> None:
    assert random_tokens(3, 40, 8, VOCAB, seed=0) == WORDS
    assert len({prompt[:BLOCK_TOKENS] for prompt in WORDS.prompts}) == 3
    assert [len(draft) for draft in WORDS.drafts] == [8, 8, 8]


def test_arms_take_turns_and_a_cell_leaves_no_generation_behind() -> None:
    engine = torch_verifier(tiny_llama())
    samples = list(warm_samples(WARM, {"torch": bed_of("torch", engine)}, None, WORDS, 3))
    assert arms(samples) == [*TORCH_ARMS, *reversed(TORCH_ARMS), *TORCH_ARMS]
    assert engine.usage().generations == engine.usage().used_blocks == 0
    assert engine.usage().cached_blocks >= 3 * (WARM.prefix // BLOCK_TOKENS)  # the next cell finds its prefixes
    cold = list(cold_samples(COLD, [bed_of("torch", engine)], random_tokens(3, 20, 4, VOCAB, seed=1)))
    assert arms(cold) == ["torch greedy"]
    assert engine.usage().generations == 0


def test_an_arm_that_fails_is_reported_and_the_others_go_on() -> None:
    beds = {
        "small": bed_of("small", torch_verifier(tiny_llama(), blocks=4)),
        "torch": bed_of("torch", torch_verifier(tiny_llama())),
    }
    samples = list(warm_samples(WARM, beds, None, WORDS, 1))
    failed = {sample.arm: sample.failure for sample in samples if sample.failure}
    assert set(failed) >= {"small greedy", "small sampled"}
    assert "ContextTooLongError" in failed["small greedy"]
    assert {sample.arm for sample in samples if sample.seconds is not None} == set(TORCH_ARMS)


def test_the_bare_step_runs_the_same_passes_and_spoils_nothing() -> None:
    bed = vllm_bed()
    assert bed.recorder is not None
    assert arms(list(warm_samples(WARM, {"vllm": bed}, None, WORDS, 2))).count(BARE) == 2
    bed.open(WARM, WORDS)
    bed.round(GREEDY)
    for _ in range(3):
        bed.bare_call()()
        bed.round(GREEDY)
        [segments] = bed.recorder.passes
        assert [(len(segment.token_ids), segment.logit_rows) for segment in segments] == [(5, 5)] * 3
        bed.bare_call()()
    bed.round(SAMPLED)
    assert len(bed.recorder.passes) == 1  # the sampled round is none of the bare step's business
    for mode, driver in bed.drivers.items():
        for prompt, tokens in zip(WORDS.prompts, driver.tokens.values(), strict=True):
            said = tokens[WARM.prefix :]
            assert said == target_alone(tiny_llama(), prompt[: WARM.prefix], MODES[mode], len(said))
    bed.close(keep_cache=False)


def test_a_cold_round_and_its_bare_steps_take_the_same_chunks() -> None:
    bed = vllm_bed()
    assert arms(list(cold_samples(COLD, [bed], random_tokens(3, 20, 4, VOCAB, seed=2)))) == ["vllm greedy", BARE]
    assert bed.recorder is not None
    computed = sum(len(segment.token_ids) for passed in bed.recorder.passes for segment in passed)
    assert len(bed.recorder.passes) > 1
    assert computed == COLD.generations * (COLD.prefix + COLD.draft)


@pytest.mark.parametrize("window", [0, 2, 5])
def test_an_engine_alone_says_what_was_recorded(window: int) -> None:
    engine: VerifierEngine = torch_verifier(tiny_llama())
    sample = alone_sample("torch", engine, tiny_responses(), window, TOKENS)
    assert sample.exact
    assert sample.clients == len(tiny_responses())
    assert (sample.acceptance is None) == (window == 0)
    assert engine.usage().generations == 0
    other = [replace(one, output_ids=(*one.output_ids[:-1], VOCAB)) for one in tiny_responses()]
    assert not alone_sample("torch", engine, other, window, TOKENS).exact


def test_samples_are_read_back_as_far_as_they_got(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    assert read_samples(file) == ([], [])
    one, two = RoundSample(WARM, BARE, 0.1), AloneSample("torch", 4, 2, 10.0, None, exact=True)
    file.write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in (one, two)))
    assert read_samples(file) == ([one], [two])

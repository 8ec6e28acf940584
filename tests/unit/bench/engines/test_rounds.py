import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.engines.alone import alone_sample
from bench.engines.engines import MODES, MeasuredEngine
from bench.engines.plan import AloneCell, RoundCell
from bench.engines.recorded_passes import BareStep, PassRecorder
from bench.engines.rounds import BARE, cold_samples, read_samples, warm_samples
from bench.harness.driver import random_tokens
from bench.harness.samples import Sample
from outrider.contracts.verifying import VerifierEngine
from outrider.engines.verifier.engine import PagedVerifier
from tests.unit.bench.recorded_tiny import TOKENS, tiny_responses
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import target_alone
from tests.unit.engines.vllm_models import VLLM_MODELS

WARM, COLD = RoundCell(3, 4, 20, warm=True), RoundCell(3, 4, 20, warm=False)
WORDS = random_tokens(3, 40, 8, VOCAB, seed=0)
TORCH_ARMS = ["torch greedy", "torch sampled"]


def vllm_engine() -> MeasuredEngine:
    recorder = PassRecorder(VLLM_MODELS.started(tiny_llama()))
    engine = PagedVerifier(
        recorder, vocab_size=VOCAB, max_context_tokens=256, prefill_chunk_tokens=16, kept_rows_bytes=2**20
    )
    return MeasuredEngine("vllm", engine, recorder, BareStep(recorder.model))


def arms(samples: Sequence[Sample[RoundCell]]) -> list[str]:
    assert not [sample.failure for sample in samples if sample.failure]
    assert all(sample.values for sample in samples)
    return [sample.arm for sample in samples]


def test_arms_take_turns_and_a_cell_leaves_no_generation_behind() -> None:
    engine = torch_verifier(tiny_llama())
    samples = list(warm_samples(WARM, [MeasuredEngine("torch", engine)], WORDS, 3))
    assert arms(samples) == [*TORCH_ARMS, *reversed(TORCH_ARMS), *TORCH_ARMS]
    assert engine.usage().generations == engine.usage().used_blocks == 0
    assert engine.usage().cached_blocks >= 3 * (WARM.prefix // BLOCK_TOKENS)  # the next cell finds its prefixes
    cold = list(cold_samples(COLD, [MeasuredEngine("torch", engine)], random_tokens(3, 20, 4, VOCAB, seed=1)))
    assert arms(cold) == ["torch greedy"]
    assert engine.usage().generations == 0


def test_an_arm_that_fails_is_reported_and_the_others_go_on() -> None:
    small = MeasuredEngine("small", torch_verifier(tiny_llama(), blocks=4))
    engines = [small, MeasuredEngine("torch", torch_verifier(tiny_llama()))]
    samples = list(warm_samples(WARM, engines, WORDS, 1))
    failed = {sample.arm: sample.failure for sample in samples if sample.failure}
    assert set(failed) >= {"small greedy", "small sampled"}
    assert "ContextTooLongError" in failed["small greedy"]
    assert {sample.arm for sample in samples if sample.values} == set(TORCH_ARMS)


def test_the_bare_step_runs_the_same_passes_and_spoils_nothing() -> None:
    measured = vllm_engine()
    assert measured.recorder is not None
    assert arms(list(warm_samples(WARM, [measured], WORDS, 2))).count(BARE) == 2
    measured.open(WARM, WORDS)
    measured.round("greedy")
    for _ in range(3):
        measured.bare_call()()
        measured.round("greedy")
        [segments] = measured.recorder.passes
        assert [(len(segment.token_ids), segment.logit_rows) for segment in segments] == [(5, 5)] * 3
        measured.bare_call()()
    measured.round("sampled")
    assert len(measured.recorder.passes) == 1  # the sampled round is none of the bare step's business
    for mode, driver in measured.drivers.items():
        for prompt, tokens in zip(WORDS.prompts, driver.tokens.values(), strict=True):
            said = tokens[WARM.prefix :]
            assert said == target_alone(tiny_llama(), prompt[: WARM.prefix], MODES[mode], len(said))
    measured.close(keep_cache=False)


def test_a_cold_round_and_its_bare_steps_take_the_same_chunks() -> None:
    measured = vllm_engine()
    assert arms(list(cold_samples(COLD, [measured], random_tokens(3, 20, 4, VOCAB, seed=2)))) == ["vllm greedy", BARE]
    assert measured.recorder is not None
    computed = sum(len(segment.token_ids) for passed in measured.recorder.passes for segment in passed)
    assert len(measured.recorder.passes) > 1
    assert computed == COLD.generations * (COLD.prefix + COLD.draft)


@pytest.mark.parametrize("window", [0, 2, 5])
def test_an_engine_alone_says_what_was_recorded(window: int) -> None:
    engine: VerifierEngine = torch_verifier(tiny_llama())
    sample = alone_sample("torch", engine, tiny_responses(), window, TOKENS)
    assert sample.values["exact"] == 1.0
    assert sample.cell == AloneCell(len(tiny_responses()), window)
    assert ("acceptance" in sample.values) == (window > 0)
    assert engine.usage().generations == 0
    other = [replace(one, output_ids=(*one.output_ids[:-1], VOCAB)) for one in tiny_responses()]
    assert alone_sample("torch", engine, other, window, TOKENS).values["exact"] == 0.0


def test_samples_are_read_back_as_far_as_they_got(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    assert read_samples(file) == ([], [])
    one, two = Sample(WARM, BARE, {"ms": 0.1}), Sample(AloneCell(4, 2), "torch", {"tokens_per_s": 10.0})
    file.write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in (one, two)))
    assert read_samples(file) == ([one], [two])

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.profile import main, measure, write_samples
from bench.profile_plots import plot_profile
from bench.profile_runs import BatchRunner, ProfilingError, UniquePrompts
from bench.profile_tables import print_profile
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import Block, KvUsage, OpenGeneration, Outcome, Resolution, Verified, VerifierEngine
from outrider.costs.fit_figures import BatchSample, Regime
from outrider.costs.fitting import FitKind, fit
from outrider.costs.profiling_plan import profiling_plan
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_verifier

TRUTH = LinearCostModel(2e-3, 1e-6, 1e-5, 0.04)


class TimedEngine:
    """A verifier of known speed: nothing is computed, but its clock moves."""

    def __init__(self, cached_tokens: int = 0) -> None:
        self.now_s = 0.0
        self.passes: list[tuple[VerifyCost, ...]] = []
        self._computed: dict[str, int] = {}
        self._cached_tokens = cached_tokens

    def open(self, request: OpenGeneration) -> None:
        self._computed[request.generation] = 0

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        assert not resolutions
        costs = []
        for block in blocks:
            cached = self._computed[block.generation]
            costs.append(VerifyCost(block.position + len(block.draft) - cached, cached))
            self._computed[block.generation] = block.position
        self.passes.append(tuple(costs))
        self.now_s += TRUTH.predict_s(costs)
        return [Verified(one.generation, one.round, (), 1, cached_tokens=self._cached_tokens) for one in blocks]

    def close(self, generation: str, *, keep_cache: bool) -> None:
        assert not keep_cache, "what was measured must not help what follows"
        del self._computed[generation]

    def usage(self) -> KvUsage:
        return KvUsage(16, 100, 0, 0, len(self._computed), 0)

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self.passes[-1]


def runner_of(engine: TimedEngine) -> BatchRunner:
    checked: VerifierEngine = engine
    return BatchRunner(checked, UniquePrompts(50_000, 0), lambda: engine.now_s)


BATCHES = [
    (VerifyCost(30, 0),),
    (VerifyCost(3, 40), VerifyCost(1, 25)),
    (VerifyCost(17, 0), VerifyCost(5, 60), VerifyCost(2, 0)),
]


@pytest.mark.parametrize("blocks", BATCHES)
@pytest.mark.parametrize("warmups", [0, 3])
def test_the_batch_that_is_timed_is_the_one_asked_for(blocks: tuple[VerifyCost, ...], warmups: int) -> None:
    engine = TimedEngine()
    seconds = runner_of(engine).run(blocks, warmups)
    assert engine.passes[-1] == blocks
    assert seconds == pytest.approx(TRUTH.predict_s(blocks))
    assert engine.usage().generations == 0, "all of them are closed"
    warm = sum(bool(block.cached_tokens) for block in blocks)
    assert len(engine.passes) == warm + warmups + 1


def test_cached_prompts_end_the_profile() -> None:
    with pytest.raises(ProfilingError, match="found 16 tokens of it"):
        runner_of(TimedEngine(cached_tokens=16)).run(BATCHES[0])


@pytest.mark.parametrize("blocks", BATCHES)
def test_a_real_engine_decides_every_block(blocks: tuple[VerifyCost, ...]) -> None:
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=64)
    ticks = iter(range(100))
    runner = BatchRunner(engine, UniquePrompts(VOCAB, 0), lambda: float(next(ticks)))
    assert [runner.run(blocks, 1), runner.run(blocks)] == [1.0, 1.0]
    assert (engine.usage().used_blocks, engine.usage().cached_blocks) == (0, 0)


def test_a_chunk_that_is_too_small_for_one_pass_is_noticed() -> None:
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=16)
    with pytest.raises(ProfilingError, match="a pass that decides every block, found Unfinished"):
        BatchRunner(engine, UniquePrompts(VOCAB, 0), lambda: 0.0).run((VerifyCost(40, 0),))


def test_no_prompt_is_used_twice() -> None:
    prompts = UniquePrompts(1000, seed=0)
    taken = [prompts.take(length) for length in (1, 1, 5, 20, 20)]
    assert [len(prompt) for prompt in taken] == [1, 1, 5, 20, 20]
    assert len({prompt[0] for prompt in taken}) == 5
    few = UniquePrompts(2, seed=0)
    assert {few.take(1), few.take(1)} == {(0,), (1,)}
    with pytest.raises(ProfilingError, match="never used"):
        few.take(1)


def test_a_whole_profile_of_a_machine_of_equation_19(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = profiling_plan(128, share=0.4)
    train, test = measure(runner_of(TimedEngine()), plan, repeats=2, warmups=1, seed=0)
    assert [sample.blocks for sample in (*train, *test)] == [one.blocks for one in (*plan.train, *plan.test)]
    assert all(len(sample.seconds) == 2 and sample.variation < 1e-6 for sample in (*train, *test))
    fitted = fit(train, test, bootstraps=10)
    for name, interval in fitted.reports[FitKind.RELATIVE].coefficients.items():
        assert interval.value == pytest.approx(getattr(TRUTH, name), rel=1e-3)
    print_profile(train, test, fitted)
    printed = capsys.readouterr().out
    for heading in ("noise of the measurements", "coefficients, us", "unseen samples by regime", "cross-validation"):
        assert heading in printed
    write_samples(tmp_path / "samples.csv", train, test, fitted)
    with (tmp_path / "samples.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["set"] for row in rows] == ["train"] * len(train) + ["test"] * len(test)
    for row, sample in zip(rows, (*train, *test), strict=True):
        assert float(row["median_s"]) == pytest.approx(sample.median_s, abs=1e-6)
        assert float(row[FitKind.RELATIVE]) == pytest.approx(sample.median_s, rel=1e-3)
    plot_profile(tmp_path, train, test, fitted)
    assert sorted(file.name for file in tmp_path.glob("*.png")) == ["profile_errors.png", "profile_fit.png"]


def test_tables_need_neither_repeats_nor_unseen_samples(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [
        BatchSample(Regime.COMPUTE_BOUND, (VerifyCost(new, 0),), (TRUTH.predict_s([VerifyCost(new, 0)]),))
        for new in range(1, 21)
    ]
    print_profile(samples, [], fit(samples, bootstraps=0))
    printed = capsys.readouterr().out
    assert "noise" not in printed
    assert "unseen" not in printed
    assert "compute_bound, with row offsets" in printed


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--device", "mps"], "--device needs cpu, cuda or cuda:N, found mps"),
        (["--threads", "0"], "needs at least 1, found 0"),
        (["--repeats", "0"], "needs at least 1, found 0"),
        (["--warmups", "-1"], "needs at least 0, found -1"),
        (["--tensor-parallel-size", "2"], "--vllm-options need --engine vllm"),
        (["--vllm-options", "quantization: fp8"], "--vllm-options need --engine vllm"),
        (["--vllm-options", "fp8"], "needs a YAML mapping, found 'fp8'"),
        (["--engine", "vllm", "--device", "cuda:1"], "needs cpu or cuda with --engine vllm, found cuda:1"),
        (["--engine", "sglang"], "invalid choice: 'sglang'"),
        (["--clock", "cpu", "--threads", "2"], "--clock cpu needs --threads 1"),
        (["--out", "{}/taken/profile.json"], "needs a folder to write to, found"),
        (["--out", "{}"], "--out needs a file that can be written"),
        (["--plots", "{}/taken"], "needs a folder to write to, found"),
    ],
)
def test_what_could_not_be_measured_or_written_is_refused_at_once(
    flags: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["--target", "/no/such/model", *(flag.format(tmp_path) for flag in flags)])
    assert ended.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("tokens", [0, 10, 63])
def test_too_few_tokens_to_scale_by_are_refused(tokens: int, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=f"largest_tokens needs at least 64, found {tokens}"):
        main(["--largest-tokens", str(tokens), "--out", str(tmp_path / "profile.json")])

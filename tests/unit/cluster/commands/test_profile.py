import csv
from argparse import ArgumentParser
from pathlib import Path

import pytest

from cluster.cli import main
from cluster.commands.profile import add_options, spec_of, write_samples
from cluster.reports.profile import show_profile
from lab.reports.profile_plots import plot_profile
from outrider.assembly.verifiers import verifier_spec
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import ModelConfig
from outrider.contracts.cost import VerifyCost
from outrider.costs.batch_runs import measure
from outrider.costs.fit_figures import BatchKind, BatchSample
from outrider.costs.fitting import FitKind, fit
from outrider.costs.profiling_plan import profiling_plan
from outrider.engines.registry import VERIFIERS
from tests.unit.costs.test_batch_runs import TRUTH, TimedEngine, runner_of


def status(*options: str) -> int | str | None:
    """Of ``outrider profile``, whoever refuses: the parser exits, the command returns."""
    try:
        return main(["profile", *options])
    except SystemExit as ended:
        return ended.code


def test_a_whole_profile_of_a_machine_of_equation_19(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = profiling_plan(128, share=0.4)
    train, test = measure(runner_of(TimedEngine()), plan, repeats=2, warmups=1, seed=0)
    assert [sample.blocks for sample in (*train, *test)] == [one.blocks for one in (*plan.train, *plan.test)]
    assert all(len(sample.seconds) == 2 and sample.variation < 1e-6 for sample in (*train, *test))
    fitted = fit(train, test, bootstraps=10)
    for name, interval in fitted.reports[FitKind.RELATIVE].coefficients.items():
        assert interval.value == pytest.approx(getattr(TRUTH, name), rel=1e-3)
    show_profile(train, test, fitted)
    printed = capsys.readouterr().out
    for heading in ("noise of the measurements", "coefficients, us", "unseen samples by kind", "cross-validation"):
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


def test_it_measures_the_type_that_a_service_computes_in() -> None:
    """Both by their defaults; the profile of another type would be refused."""
    parser = ArgumentParser()
    add_options(parser)
    profiled = spec_of(parser.parse_args([]), profiling_plan(128))
    served = VERIFIERS["torch"].settled(verifier_spec(ModelConfig(), VerifierConfig()))
    assert profiled.machine("target", "1") == served.machine("target", "1")


def test_tables_need_neither_repeats_nor_unseen_samples(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [
        BatchSample(BatchKind.COMPUTE_BOUND, (VerifyCost(new, 0),), (TRUTH.predict_s([VerifyCost(new, 0)]),))
        for new in range(1, 21)
    ]
    show_profile(samples, [], fit(samples, bootstraps=0))
    printed = capsys.readouterr().out
    assert "noise" not in printed
    assert "unseen" not in printed
    assert "compute_bound, with row offsets" in printed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--device", "mps"], "--device needs cpu, cuda or cuda:N, found 'mps'"),
        (["--threads", "0"], "needs an integer of at least 1, found '0'"),
        (["--repeats", "0"], "needs an integer of at least 1, found '0'"),
        (["--warmups", "-1"], "needs an integer of at least 0, found '-1'"),
        (["--tensor-parallel-size", "2"], "--vllm-options needs --engine vllm"),
        (["--vllm-options", "quantization: fp8"], "--vllm-options needs --engine vllm"),
        (["--vllm-options", "fp8"], "needs a YAML mapping, found 'fp8'"),
        (["--engine", "vllm", "--device", "cuda:1"], "needs cpu or cuda with --engine vllm, found 'cuda:1'"),
        (["--engine", "sglang"], "invalid choice: 'sglang'"),
        (["--clock", "cpu", "--threads", "2"], "--clock cpu needs --threads 1"),
        (["--out", "{}/taken/profile.json"], "needs a place in a folder, found"),
        (["--out", "{}"], "needs the name of a file, found"),
        (["--plots", "{}/taken"], "needs a place in a folder, found"),
    ],
)
def test_what_could_not_be_measured_or_written_is_refused_at_once(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    assert status("--target", "/no/such/model", *(flag.format(tmp_path) for flag in flags)) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("tokens", [0, 10, 63])
def test_too_few_tokens_to_scale_by_are_refused(
    tokens: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("--largest-tokens", str(tokens), "--out", str(tmp_path / "profile.json")) == 2
    assert f"largest_tokens needs at least 64, found {tokens}" in capsys.readouterr().err

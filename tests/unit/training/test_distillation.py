from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from outrider.contracts.errors import ParameterError
from outrider.models.drafter_model import output_head
from outrider.models.drafter_weights import read_drafter, read_drafter_info
from outrider.models.loading import LoadedModel, load_drafter, load_target
from outrider.training.distillation.distill import DistillConfig, DistillReport, distill
from outrider.training.distillation.measured_acceptance import evaluate_acceptance
from outrider.training.distillation.student import (
    Student,
    Teacher,
    cut_from_target,
    distillation_loss,
    frequent_tokens,
    head_ids,
    learning_rate,
    predicting_rows,
    take_step,
)
from outrider.training.traces import Trace, read_traces, split_traces
from tests.unit.models.tiny_models import WORDS, save_model, tiny_model


class StopError(Exception):
    """What ends a run early in a test."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model(tmp_path_factory.mktemp("target"), tiny_model("llama", layers=4))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    file.write_text("\n".join(f"w{i} w{j}" for i in range(WORDS) for j in range(4)))
    return file


def config_in(where: Path, folder: Path, prompts: Path) -> DistillConfig:
    return DistillConfig(
        target=str(folder),
        out=where / "drafter.safetensors",
        steps=12,
        layers=2,
        batch=4,
        learning_rate=3e-3,
        prompts=prompts,
        trace_count=160,
        max_new_tokens=10,
        checkpoint_every_steps=5,
        threads=1,
    )


@pytest.fixture
def config(folder: Path, prompts: Path, tmp_path: Path) -> DistillConfig:
    """Of a run that makes its own traces."""
    return config_in(tmp_path, folder, prompts)


@dataclass(frozen=True)
class Trained:
    """A drafter, and the traces that it was made from."""

    out: Path
    traces: Path
    report: DistillReport


@pytest.fixture(scope="module")
def trained(folder: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """By ``config``; to be read."""
    config = config_in(tmp_path_factory.mktemp("trained"), folder, prompts)
    report, _ = run(config)
    return Trained(config.out, config.out.with_suffix(".traces.jsonl.gz"), report)


@pytest.fixture
def briefly(config: DistillConfig, trained: Trained) -> DistillConfig:
    """``config`` over the traces that there are."""
    return replace(config, traces=trained.traces)


def run(config: DistillConfig, *, stop_at: int | None = None) -> tuple[DistillReport, list[float]]:
    losses: list[float] = []

    def on_step(done: int, loss: float) -> None:
        losses.append(loss)
        if done == stop_at:
            raise StopError

    return distill(config, progress=False, on_step=on_step), losses


def test_training_lowers_the_loss_and_raises_acceptance(briefly: DistillConfig) -> None:
    report, losses = run(replace(briefly, steps=150))
    assert sum(losses[-10:]) < 0.75 * sum(losses[:10])
    assert report.before.overlap is not None
    assert report.after.overlap is not None
    assert report.after.overlap > report.before.overlap
    assert report.last_loss == losses[-1]
    measured = read_drafter_info(briefly.out).measured
    assert measured["overlap_acceptance"] == report.after.overlap
    assert measured["greedy_acceptance"] == report.after.greedy


def test_an_interrupted_run_ends_bit_for_bit_like_an_uninterrupted_one(config: DistillConfig, tmp_path: Path) -> None:
    whole, losses = run(config)
    other = replace(config, out=tmp_path / "other" / "drafter.safetensors")
    with pytest.raises(StopError):
        run(other, stop_at=7)  # two steps behind the checkpoint
    resumed, tail = run(other)
    assert tail == losses[5:]
    assert other.out.read_bytes() == config.out.read_bytes()
    assert replace(resumed, out=whole.out) == whole
    again, none = run(other)  # a finished run has nothing left to do
    assert (again, none) == (resumed, [])


def test_another_seed_gives_another_drafter(briefly: DistillConfig, trained: Trained) -> None:
    run(replace(briefly, seed=1))
    assert briefly.out.read_bytes() != trained.out.read_bytes()


def test_a_checkpoint_of_another_run_is_refused_or_ignored(briefly: DistillConfig) -> None:
    run(briefly)
    with pytest.raises(ParameterError, match=r"resume needs .* found 'another learning_rate, steps'"):
        run(replace(briefly, steps=6, learning_rate=1e-4))
    assert len(run(replace(briefly, steps=6, resume=False))[1]) == 6


def test_a_drafter_can_be_trained_further(briefly: DistillConfig, trained: Trained, tmp_path: Path) -> None:
    further = replace(briefly, init_from=trained.out)
    second, _ = run(further)
    assert second.before.overlap == pytest.approx(trained.report.after.overlap)
    with pytest.raises(ParameterError, match=r"init_from needs a drafter of the target's layers \(0,\)"):
        run(replace(further, out=tmp_path / "c.safetensors", layers=1))


def test_a_trained_drafter_can_be_given_more_layers(briefly: DistillConfig, trained: Trained) -> None:
    deeper = replace(briefly, init_from=trained.out, layers=3)
    second, losses = run(replace(deeper, steps=60))
    first = trained.report
    assert second.before.overlap == pytest.approx(first.after.overlap), "a new layer adds nothing before it is trained"
    info, weights = read_drafter(deeper.out)
    assert info.source_layers == (0, 1, 2)
    assert weights.layers["2.mlp.down_proj.weight"].abs().max() > 0
    assert sum(losses[-10:]) < sum(losses[:10])


def test_the_file_is_the_drafter_that_was_measured(folder: Path, trained: Trained) -> None:
    target = load_target(str(folder), dtype="float32", device="cpu")
    drafter = load_drafter(str(trained.out), str(folder), dtype="float32", device="cpu")
    _, held_out = split_traces(read_traces(trained.traces))
    assert evaluate_acceptance(target, drafter.model, held_out) == trained.report.after


def test_a_target_in_bfloat16_can_be_distilled(config: DistillConfig) -> None:
    report, losses = run(replace(config, dtype="bfloat16", steps=3))
    assert len(losses) == 3
    assert report.after.greedy is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 5}, r"layers needs an integer in 1\.\.4"),
        ({"batch": 1000}, "traces needs at least one batch of 1000"),
    ],
)
def test_what_the_target_or_the_data_cannot_give_is_refused(
    briefly: DistillConfig, change: dict[str, int], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        run(replace(briefly, **change))  # type: ignore[arg-type]  # all of them integers


def test_settings_out_of_range_are_named(config: DistillConfig) -> None:
    with pytest.raises(ParameterError, match="steps needs an integer >= 1, found 0"):
        replace(config, steps=0)
    with pytest.raises(ParameterError, match=r"out needs a file name ending in \.safetensors"):
        replace(config, out=Path("drafter.bin"))
    with pytest.raises(ParameterError, match="learning_rate needs a number > 0"):
        replace(config, learning_rate=0.0)


def test_training_changes_the_student_and_leaves_the_target_alone(folder: Path) -> None:
    target = load_target(str(folder), dtype="float32", device="cpu").model
    before = {name: value.clone() for name, value in target.state_dict().items()}
    student = Student(target, (0, 1), cut_from_target(target, (0, 1)))
    own = {name: value.clone() for name, value in student.parameters().items()}
    for value in student.parameters().values():
        value.requires_grad = True
    traces = [Trace((1, 2), (3, 4, 5), 0.0)]
    loss = distillation_loss(
        student.predicted_hidden(traces), predicting_rows(Teacher(target), traces), output_head(target), 0.5
    )
    take_step(torch.optim.AdamW(student.parameters().values()), loss, 1e-2)
    assert not any(torch.equal(value, own[name]) for name, value in student.parameters().items())
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_learning_rate_warms_up_and_decays_to_a_twentieth() -> None:
    rates = [learning_rate(step, 200, 1.0) for step in range(201)]
    assert rates[0] == pytest.approx(0.05)
    assert max(rates) == pytest.approx(1.0, abs=0.03)
    assert all(earlier >= later for earlier, later in pairwise(rates[20:]))
    assert rates[-1] == pytest.approx(0.05)


def test_frequent_tokens_count_outputs_and_break_ties_by_id() -> None:
    traces = [Trace((9, 9, 9), (5, 3, 3), 0.0), Trace((9,), (7, 5, 1), 0.0)]
    assert frequent_tokens(traces, 3) == [1, 3, 5]
    assert frequent_tokens(traces, 99) == [1, 3, 5, 7]


def test_loss_is_zero_at_the_target_and_positive_elsewhere() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(6, 8, generator=generator), torch.randn(20, 8, generator=generator)
    assert distillation_loss(hidden, hidden, head, 0.5).item() == pytest.approx(0.0, abs=1e-6)
    other = torch.randn(6, 8, generator=generator)
    assert distillation_loss(other, hidden, head, 0.0) > 0
    assert distillation_loss(other, hidden, head, 0.5) > distillation_loss(other, hidden, head, 0.0)


def test_a_model_accepts_itself_and_traces_of_other_temperatures_are_left_out(folder: Path) -> None:
    target: LoadedModel = load_target(str(folder), dtype="float32", device="cpu")
    traces = [Trace((1, 2), (3, 4, 5), temperature) for temperature in (0.0, 0.7, 1.0)]
    report = evaluate_acceptance(target, target.model, traces)
    assert (report.greedy, report.shared_noise) == (1.0, 1.0)
    assert report.overlap == pytest.approx(1.0)
    none = evaluate_acceptance(target, target.model, traces[1:2])
    assert (none.greedy, none.overlap, none.shared_noise) == (None, None, None)


def test_the_drafter_proposes_the_most_frequent_tokens_and_another_head_needs_no_training(
    briefly: DistillConfig, trained: Trained, tmp_path: Path
) -> None:
    run(replace(briefly, head_tokens=20))
    first = read_drafter(briefly.out)[1]
    assert first.head_ids is not None
    assert len(first.head_ids) == 20
    assert (first.head_ids.diff() > 0).all()
    seen = Counter(token for trace in split_traces(read_traces(trained.traces))[0] for token in trace.output_ids)
    fewest = min(seen[token] for token in first.head_ids.tolist())
    assert all(count <= fewest for token, count in seen.items() if token not in first.head_ids)

    wider = replace(briefly, out=tmp_path / "wider.safetensors", init_from=briefly.out, steps=0)
    report, losses = run(replace(wider, head_tokens=30))
    assert (report.trained_tokens, losses) == (0, [])
    second = read_drafter(wider.out)[1]
    assert second.head_ids is not None
    assert set(first.head_ids.tolist()) < set(second.head_ids.tolist())
    assert all(torch.equal(value, second.layers[name]) for name, value in first.layers.items())

    run(replace(wider, head_tokens=10_000, resume=False))
    assert read_drafter(wider.out)[1].head_ids is None, "it proposes all there are"


def test_no_steps_from_nothing_are_refused(config: DistillConfig) -> None:
    with pytest.raises(ParameterError, match=r"steps needs an integer >= 1, found 0"):
        replace(config, steps=0)


def test_rarely_seen_tokens_are_filled_up_with_the_lowest_ids() -> None:
    traces = [Trace((1,), (7, 9, 9), 0.0)]
    found = head_ids(traces, 4, 12)
    assert found is not None
    assert found.tolist() == [0, 1, 7, 9]
    assert head_ids(traces, 12, 12) is None

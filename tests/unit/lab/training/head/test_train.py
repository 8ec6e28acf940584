from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.training.head import train
from lab.training.head.head_config import HeadConfig
from lab.training.head.links import CALIBRATED
from lab.training.head.pair import EncodedTask, Pair
from lab.training.head.sweep import STRICT, SweptRow, sweep
from lab.training.head.train import HeadReport, train_head
from lab.training.tasks.task import Task, TaskDivision, is_validation
from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.models.head_file import read_head
from outrider.models.pair_file import check_pair
from outrider.verification.decision_head import HeadWeights
from tests.unit.lab.training.head.tiny_pairs import LIMIT, load, tasks


@pytest.fixture(scope="module")
def division(folders: tuple[str, str]) -> TaskDivision:
    every = tuple(tasks(load(folders), 64))
    return TaskDivision(every[:40], every[40:54], every[54:])


def config_in(where: Path, folders: tuple[str, str]) -> HeadConfig:
    target, drafter = folders
    return HeadConfig(
        target=target,
        drafter=drafter,
        out=where / "head.safetensors",
        max_new_tokens=LIMIT,
        mismatches_per_task=6,
        least_mismatches=40,
        least_calibration_tasks=5,
        batch=64,
        links_per_answer=4,
        hidden=8,
        epochs=8,
        window_tokens=6,
        thresholds=(0.0, 0.2, 0.5, 1.0),
        dtype="float32",
        drafter_dtype="float32",
    )


@pytest.fixture
def config(folders: tuple[str, str], tmp_path: Path) -> HeadConfig:
    return config_in(tmp_path, folders)


def run(config: HeadConfig, division: TaskDivision) -> HeadReport:
    return train_head(config, division, progress=False)


Trained = tuple[HeadConfig, HeadReport]


@pytest.fixture(scope="module")
def trained(folders: tuple[str, str], division: TaskDivision, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """By ``config``, to be read."""
    config = config_in(tmp_path_factory.mktemp("trained"), folders)
    return config, run(config, division)


def test_a_head_is_trained_measured_and_written_for_its_pair(trained: Trained, division: TaskDivision) -> None:
    config, report = trained
    read = read_head(config.out)
    info, head = read.info, read.decisions
    models = load((config.target, config.drafter))
    check_pair(info, target_hash=models.target.model_hash, drafter_hash=models.drafter.model_hash)
    assert info.threshold == head.threshold == report.threshold
    assert head.drafter_width == 32
    assert {fit.relabelling for fit in report.fits} == {"sum", "max", "none"}
    assert report.critical < report.mismatches
    assert report.answers == len(division.training)

    strict = next(row for row in report.calibration if row.rule == "strict")
    heads = {(row.threshold, row.link): row for row in report.calibration if row.rule == "head"}
    assert set(heads) == {(threshold, link) for threshold in config.thresholds for link in CALIBRATED}
    for link in CALIBRATED:
        first, last = heads[0.0, link], heads[1.0, link]
        assert (first.score, first.aal, first.drop, first.drop_bound) == (strict.score, strict.aal, 0.0, 0.0)
        assert (first.rejection_share, last.rejection_share) == (1.0, 0.0)
        assert last.aal > first.aal
        assert last.drop_bound >= last.drop
    assert report.bounds[0] == 0.0
    passing = [bound < config.most_drop for bound in report.bounds]
    assert report.threshold == config.thresholds[passing.index(False) - 1 if False in passing else -1]
    assert {row.threshold for row in report.test if row.rule == "head"} == {report.threshold}
    assert {row.rule for row in report.calibration} == {row.rule for row in report.test} == {"head", STRICT}
    own = [heads[report.threshold, link].rejection_share for link in CALIBRATED]
    assert info.rejection_low <= min(own) <= max(own) <= info.rejection_high == 1.0
    assert info.hidden_field == config.hidden_field
    assert info.measured["test_score_strict"] == next(row.score for row in report.test if row.rule == "strict")


def test_the_head_that_is_measured_is_the_one_in_the_file(
    config: HeadConfig, division: TaskDivision, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[HeadWeights] = []

    def noted(
        pair: Pair, asked: Sequence[EncodedTask], weights: HeadWeights, *rest: object, **more: object
    ) -> list[SweptRow]:
        compared.append(weights)
        assert not config.out.exists(), "nobody serves a head that is not done"
        return sweep(pair, asked, weights, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(train, "sweep", noted)
    run(config, division)
    written = read_head(config.out).decisions.weights
    assert len(compared) == 2
    for own in compared:
        assert np.array_equal(own.inner, written.inner)
        assert np.array_equal(own.inner, own.inner.astype(np.float16)), "rounded"


def test_too_few_tasks_for_a_threshold_are_refused(config: HeadConfig, division: TaskDivision) -> None:
    with pytest.raises(ParameterError, match="tasks needs at least 500 for calibration"):
        run(replace(config, least_calibration_tasks=500), division)


def test_training_again_gives_the_same_file(trained: Trained, division: TaskDivision, tmp_path: Path) -> None:
    config, report = trained
    other = replace(config, out=tmp_path / "other" / "head.safetensors")
    assert run(other, division) == report
    assert other.out.read_bytes() == config.out.read_bytes()
    assert other.label_file.read_bytes() == config.label_file.read_bytes()
    third = replace(config, out=tmp_path / "third.safetensors", labels=config.label_file, seed=0, relabelling="none")
    assert run(third, division).fits == report.fits, "all are fitted, one is written"
    assert third.out.read_bytes() != config.out.read_bytes()


def test_relabelling_is_what_tells_links_apart(config: HeadConfig, division: TaskDivision) -> None:
    many = replace(config, least_repair_share=0.2, links_per_answer=32, learning_rate=0.003, dropout=0.5)
    fits = {fit.relabelling: fit for fit in run(many, division).fits}
    assert fits["sum"].rejected_share < fits["none"].rejected_share
    *_, best, worst = fits["sum"].mean_rejection.values()
    assert best > worst + 0.02, fits["sum"]


def test_too_few_mismatches_are_counted(config: HeadConfig, division: TaskDivision) -> None:
    with pytest.raises(ParameterError, match=r"at least 5000 mismatches in answers .* found '\d+ in \d+ answers'"):
        run(replace(config, least_mismatches=5000), division)


def test_a_kind_that_is_missing_is_counted(config: HeadConfig, division: TaskDivision) -> None:
    lenient = replace(division, training=tuple(replace(task, parts=("w",)) for task in division.training))
    with pytest.raises(ParameterError, match="at least 10 critical and as many harmless mismatches for"):
        run(config, lenient)


def test_labels_of_another_pair_are_refused_before_anything_is_computed(
    trained: Trained, division: TaskDivision, tmp_path: Path
) -> None:
    config, _ = trained
    other = replace(config, drafter=config.target, labels=config.label_file, out=tmp_path / "b.safetensors")
    with pytest.raises(ParameterError, match=r"labels needs labels of this pair.*drafter"):
        run(other, division)
    assert not other.out.exists()


def test_models_that_are_not_there_are_named(config: HeadConfig, division: TaskDivision, tmp_path: Path) -> None:
    for side in ("target", "drafter"):
        with pytest.raises(ModelUnavailableError, match="nowhere"):
            run(replace(config, **{side: str(tmp_path / "nowhere")}), division)  # type: ignore[arg-type]


def test_a_prompt_without_room_for_its_answer_is_named(config: HeadConfig, division: TaskDivision) -> None:
    long = replace(division.test[0], prompt="w1 " * 120)
    with pytest.raises(ParameterError, match=rf"prompts of at most 114 tokens.*120 in task {long.key}"):
        run(config, replace(division, test=(long,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch needs an integer >= 1, found 0"),
        ({"thresholds": (0.1, 0.2)}, "thresholds needs numbers that rise from 0"),
        ({"thresholds": (0.0, 0.5, 0.3)}, "thresholds needs numbers that rise from 0"),
        ({"relabelling": "mean"}, "relabelling needs one of sum, max, none"),
        ({"hidden_field": "bf16"}, "hidden_field needs one of fp32, fp16, int8"),
        ({"most_drop": 0.0}, "most_drop needs a number > 0"),
        ({"least_repair_share": 0.0}, r"least_repair_share needs a number in 0\.01\.\.1"),
        ({"out": Path("head.bin")}, r"out needs a file name ending in \.safetensors"),
    ],
)
def test_settings_out_of_range_are_named(config: HeadConfig, change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(config, **change)  # type: ignore[arg-type]


def test_some_tasks_are_validated_on(division: TaskDivision) -> None:
    assert 0 < sum(map(is_validation, division.training)) < len(division.training) / 2


def test_a_division_with_nothing_in_a_part_or_a_task_twice_is_refused(division: TaskDivision) -> None:
    with pytest.raises(ParameterError, match="calibration got none"):
        replace(division, calibration=())
    task: Task = division.test[0]
    with pytest.raises(ParameterError, match=f"{task.key} more than once"):
        replace(division, training=(*division.training, task))

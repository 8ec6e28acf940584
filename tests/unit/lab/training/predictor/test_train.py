from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import copy

import pytest
from scipy.special import expit

from lab.training.predictor import material
from lab.training.predictor.drafted import split
from lab.training.predictor.families import FAMILIES, MLP
from lab.training.predictor.material import prompts_of
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.quality import quality
from lab.training.predictor.train import PredictorReport, train_predictor
from outrider.contracts.errors import ModelUnavailableError, PairMismatchError, ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.models.pair_file import check_pair
from outrider.models.predictor_file import read_predictor
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.traces import is_held_out, prompt_ids
from tests.unit.lab.training.head.tiny_pairs import load

PROMPTS = [f"w{number % 40} w{(7 * number) % 40} w{(number * number) % 40}" for number in range(60)]


def config_in(where: Path, folders: tuple[str, str]) -> PredictorConfig:
    prompts = where / "prompts.txt"
    prompts.write_text("\n".join([*PROMPTS, "", PROMPTS[0]]), encoding="utf-8")
    target, drafter = folders
    return PredictorConfig(
        target=target,
        drafter=drafter,
        rule="ratio",
        out=where / "predictor.safetensors",
        prompts=prompts,
        max_new_tokens=16,
        window_tokens=4,
        least_tokens=200,
        trials=2,
        epochs=4,
        latency_calls=5,
        dtype="float32",
        drafter_dtype="float32",
    )


@pytest.fixture
def config(folders: tuple[str, str], tmp_path: Path) -> PredictorConfig:
    return config_in(tmp_path, folders)


def ticking() -> Callable[[], float]:
    """A clock that goes on by a millisecond each time it is looked at."""
    ticks = count()
    return lambda: next(ticks) / 1000.0


def run(config: PredictorConfig) -> PredictorReport:
    return train_predictor(config, clock=ticking(), progress=False)


Trained = tuple[PredictorConfig, PredictorReport]


@pytest.fixture(scope="module")
def trained(folders: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """By ``config``, to be read."""
    config = config_in(tmp_path_factory.mktemp("trained"), folders)
    return config, run(config)


def test_a_predictor_is_trained_compared_and_written_for_its_pair(trained: Trained) -> None:
    config, report = trained
    read = read_predictor(config.out)
    models = load((config.target, config.drafter))
    own, other = models.drafter.model_hash, models.target.model_hash
    check_pair(read.info, target_hash=other, drafter_hash=own)
    assert read.info.rule is AcceptanceRule.RATIO
    with pytest.raises(PairMismatchError, match=rf"hash {own}.* found hash {other}"):
        check_pair(read.info, drafter_hash=other)

    assert {one.family for one in report.families} | set(report.left_out) == set(FAMILIES)
    assert [part.prompts for part in report.parts.values()] == [24, 6, 4, 6], "40 prompts differ"
    test = report.parts["test"]
    for one in report.families:
        assert set(one.by_temperature) == {"0.7", "1"}
        assert one.test.tokens == test.tokens == sum(part.tokens for part in one.by_temperature.values())
        assert one.latency.mean_ms == pytest.approx(1.0)
        assert 0.1 < one.test.accepted_share < 0.9
    for replays in report.replays.values():
        assert {name: one.tokens for name, one in replays.items()} == {
            "all": test.tokens,
            **{name: part.tokens for name, part in report.families[0].by_temperature.items()},
        }
    assert [trend.feature for trend in report.trends] == ["confidence", "entropy_nats", "margin", "logit_std"]
    assert read.info.temperatures == (0.7, 1.0)
    assert read.info.threshold == report.threshold


def test_what_is_reported_of_the_perceptron_is_true_of_its_file(
    config: PredictorConfig, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def kept(*arguments: object) -> object:
        found.append(split(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(material, "split", kept)
    report = run(replace(config, rounds=(trained[0].rounds_file,)))
    (parts,) = found
    read = read_predictor(config.out)
    (own,) = (one for one in report.families if one.family == MLP)
    scores = read.perceptron.scores(parts.test.features)
    told = quality(expit(scores), expit(scores), parts.test.accepted, read.info.threshold)
    assert told.confusion == own.test.confusion
    assert told.error == pytest.approx(own.test.error, abs=1e-3)
    assert told.auc == pytest.approx(own.test.auc, abs=1e-3)
    assert read.info.measured["test_auc"] == own.test.auc


def test_training_again_gives_the_same_file_from_the_rounds_that_were_kept(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, report = trained
    other = replace(config, out=tmp_path / "other" / "predictor.safetensors", batch=7)
    again = run(other)
    assert other.rounds_file.read_bytes() == config.rounds_file.read_bytes()
    assert other.out.read_bytes() == config.out.read_bytes()
    assert again == report
    monkeypatch.setattr(material, "drafted_tokens", None)
    third = replace(config, out=tmp_path / "third.safetensors", rounds=(config.rounds_file,))
    assert run(third) == report
    assert third.out.read_bytes() == config.out.read_bytes()


def test_rounds_of_another_pair_or_rule_are_refused(trained: Trained, tmp_path: Path) -> None:
    config, _ = trained
    rounds = Path(copy(config.rounds_file, tmp_path))
    other = replace(config, out=tmp_path / "b.safetensors", rounds=(rounds,))
    with pytest.raises(
        ParameterError, match=r"rounds needs rounds of this pair.*drafter [0-9a-f]{64}.*drafter [0-9a-f]{64}"
    ):
        run(replace(other, drafter=config.target))
    with pytest.raises(ParameterError, match=r"rule shared_noise.*rule ratio in "):
        run(replace(other, rule="shared_noise"))
    assert not other.out.exists()
    rounds.write_bytes(b"none")
    with pytest.raises(ParameterError, match="rounds needs a file that `outrider train predictor` made"):
        run(other)


def test_too_few_tokens_are_counted(config: PredictorConfig) -> None:
    with pytest.raises(ParameterError, match=r"at least 100000 verified draft tokens, found \d+"):
        run(replace(config, least_tokens=100_000))
    assert not config.out.exists()
    assert config.rounds_file.exists(), "what took long is kept"
    with pytest.raises(ParameterError, match=r"prompts needs enough for at least 200 verified.* found \d+"):
        run(replace(config, most_prompts=4, rounds=(config.out.with_name("few.safetensors"),)))


def test_prompts_that_cannot_be_answered_are_named(config: PredictorConfig, tmp_path: Path) -> None:
    prompts = tmp_path / "long.txt"
    prompts.write_text("w1 " * 120, encoding="utf-8")
    with pytest.raises(ParameterError, match=r"prompts needs at most 112 tokens each.* found 120"):
        run(replace(config, prompts=prompts))
    prompts.write_text("\n", encoding="utf-8")
    with pytest.raises(ParameterError, match="prompts needs at least one that"):
        run(replace(config, prompts=prompts))


def test_built_in_prompts_are_those_that_no_drafter_was_trained_on(config: PredictorConfig) -> None:
    models = load((config.target, config.drafter))
    every = {tuple(prompt_ids(models.target.tokenizer, prompt)) for prompt in builtin_prompts()}
    own = prompts_of(models, replace(config, prompts=None))
    assert set(own) == set(filter(is_held_out, every)) < every
    assert prompts_of(models, replace(config, prompts=None, most_prompts=1)) == own[:1]


def test_models_that_are_not_there_are_named(config: PredictorConfig, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="nowhere"):
        run(replace(config, drafter=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "semantic"}, "rule needs one of greedy, shared_noise, ratio, found 'semantic'"),
        ({"rule": "greedy", "temperatures": (0.0, 1.0)}, "temperatures needs 0 for the rule greedy, found 1.0"),
        ({"temperatures": (0.0,)}, "temperatures needs numbers above 0 for the rule ratio, found 0.0"),
        ({"temperatures": (3.0,)}, r"temperatures needs a number in \[0, 2\], found 3.0"),
        ({"temperatures": ()}, "temperatures needs at least one, and each once"),
        ({"temperatures": (1.0, 1.0)}, "temperatures needs at least one, and each once"),
        ({"trials": 0}, "trials needs an integer >= 1, found 0"),
        ({"out": Path("predictor.bin")}, r"out needs a file name ending in \.safetensors"),
    ],
)
def test_settings_out_of_range_are_named(config: PredictorConfig, change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(config, **change)  # type: ignore[arg-type]

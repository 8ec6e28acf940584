"""Training from rounds that devices logged while they served."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from lab.training.predictor import train
from lab.training.predictor.families import AS_IT_IS, MLP, RecordedFeatures
from lab.training.predictor.logged import read_logs
from lab.training.predictor.pair_names import PairNames, pair_names
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.train import SHIPPED, PredictorReport, train_predictor
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.round_log import LoggedRound, LogHeader, write_header, write_round
from outrider.models.pair_file import check_pair
from outrider.models.predictor_file import read_predictor
from tests.unit.lab.training.predictor.toy import toy, truth

RATIO, SHARED = AcceptanceRule.RATIO, AcceptanceRule.SHARED_NOISE
PAIR = PairNames("large", "t" * 64, "small", "d" * 64)


def header(rule: AcceptanceRule = RATIO, pair: PairNames = PAIR, stops: str = "never") -> LogHeader:
    return LogHeader(pair.drafter, pair.drafter_hash, pair.target, pair.target_hash, rule, stops)


def log(file: Path, rounds: Sequence[LoggedRound], told: LogHeader, name: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    told = replace(told, file=name or str(file))
    file.write_bytes(b"".join([write_header(told), *map(write_round, rounds)]))
    return file


def rounds_of(requests: range, rounds: int, temperatures: Sequence[float] = (0.7, 1.0)) -> list[LoggedRound]:
    """Chains of up to four tokens whose true acceptance is ``toy.truth``, up to the first rejection."""
    found = []
    for number in requests:
        tokens = toy(number, 4 * rounds)
        for at in range(0, 4 * rounds, 4):
            own = tokens.accepted[at : at + 4]
            tested = 4 if own.all() else int(np.argmin(own)) + 1
            features = tokens.features[at : at + tested].astype(np.float32)
            temperature = temperatures[number % len(temperatures)]
            found.append(LoggedRound(number, temperature, features, rejected=not own.all()))
    return found


def test_tokens_are_those_that_were_logged_with_their_requests_and_temperatures(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    first = [LoggedRound(7, 0.7, rows[:3], rejected=True), LoggedRound(2**64 - 1, 1.0, rows[3:4], rejected=False)]
    log(tmp_path / "one" / "device-0" / "00000000-ratio.rounds", first, header())
    log(tmp_path / "two" / "00000000-ratio.rounds", [LoggedRound(7, 0.7, rows[4:], rejected=False)], header())
    log(tmp_path / "two" / "00000001-shared_noise.rounds", first, header(SHARED))
    found = read_logs([tmp_path / "one", tmp_path / "two"], PAIR, RATIO)
    assert np.array_equal(found.tokens.features, rows)
    assert found.tokens.accepted.tolist() == [1, 1, 0, 1, 1, 1]
    assert found.tokens.temperature.tolist() == [0.7, 0.7, 0.7, 1.0, 0.7, 0.7]
    assert found.tokens.prompt.tolist() == [0, 0, 0, 1, 0, 0], "a request that moved to another device is one"
    assert (found.texts, found.requests) == (((7,), (2**64 - 1,)), 2)
    assert (found.rounds, found.copies, found.files, found.unread_bytes) == (3, 0, 2, 0)


def test_of_copies_of_a_file_the_longest_is_taken(tmp_path: Path) -> None:
    rounds, others = rounds_of(range(3), 5), rounds_of(range(2), 4)
    for index, length in enumerate((7, 15, 11)):
        log(tmp_path / f"copied-{index}" / "00000000-ratio.rounds", rounds[:length], header(), name="first")
    log(tmp_path / "00000001-ratio.rounds", others, header(stops="while_it_pays"), name="second")
    found = read_logs([tmp_path], PAIR, RATIO)
    assert (found.rounds, found.files, found.copies) == (15 + 8, 2, 2)
    assert dict(found.stops) == {"while_it_pays": 8, "never": 15}


def test_rounds_that_look_alike_are_not_taken_for_copies(tmp_path: Path) -> None:
    """Of a row that truncation left one token the features are the same each time."""
    alike = LoggedRound(1, 0.7, np.array([[1.0, 0.0, 1.0, 0.0]], np.float32), rejected=True)
    log(tmp_path / "a.rounds", [alike] * 5, header())
    log(tmp_path / "b.rounds", [alike] * 2, header())
    assert read_logs([tmp_path], PAIR, RATIO).rounds == 7


def test_requests_that_say_the_same_are_one_text(tmp_path: Path) -> None:
    """Asked greedily for the same, devices draft from the same rows."""
    rows = np.random.default_rng(0).uniform(0.1, 0.9, (6, 4)).astype(np.float32)
    sure = np.array([[1.0, 0.0, 1.0, 0.0]], np.float32)
    drafted = {1: rows[:2], 2: rows[2:3], 3: rows[1:3], 4: rows[3:5], 5: sure, 6: sure, 7: rows[5:]}
    rounds = [LoggedRound(number, 0.0, own, rejected=True) for number, own in drafted.items()]
    log(tmp_path / "a.rounds", rounds, header())
    found = read_logs([tmp_path], PAIR, RATIO)
    assert (found.texts, found.requests) == (((1,), (4,), (5,), (6,), (7,)), 7), "1 and 2 by what 3 has of both"
    assert found.tokens.prompt.tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 3, 4]


def test_of_files_that_a_power_cut_ended_the_whole_rounds_are_read(tmp_path: Path) -> None:
    rounds = rounds_of(range(2), 4)
    cut = log(tmp_path / "00000000-ratio.rounds", rounds, header())
    cut.write_bytes(cut.read_bytes()[:-5])
    (tmp_path / "00000001-ratio.rounds").write_bytes(b'{"outrider_round')
    (tmp_path / "00000002-ratio.rounds").write_bytes(b"")
    found = read_logs([tmp_path], PAIR, RATIO)
    assert found.rounds == len(rounds) - 1
    assert found.unread_bytes == len(write_round(rounds[-1])) - 5


def test_where_there_is_nothing_of_this_pair_and_rule_it_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"rounds needs folders that devices logged.* found '.*none'"):
        read_logs([tmp_path / "none"], PAIR, RATIO)
    with pytest.raises(ParameterError, match=r"rule ratio, drafter small \(d{64}\) .* found '0 \*.rounds files"):
        read_logs([tmp_path], PAIR, RATIO)
    rounds = rounds_of(range(2), 3)
    log(tmp_path / "a.rounds", rounds, header(SHARED))
    log(tmp_path / "b.rounds", rounds[:2], header(pair=replace(PAIR, drafter="other", drafter_hash="e" * 64)))
    expected = r"found '6 of rule shared_noise of drafter small \(d{64}\).*; 2 of rule ratio of drafter other \(e{64}\)"
    with pytest.raises(ParameterError, match=expected):
        read_logs([tmp_path], PAIR, RATIO)
    (tmp_path / "c.rounds").write_bytes(b"something else\n")
    with pytest.raises(ParameterError, match=r"files that devices logged rounds to, found .* in .*c\.rounds"):
        read_logs([tmp_path], PAIR, RATIO)


def test_too_few_rounds_are_told_with_how_many_it_takes(tmp_path: Path) -> None:
    rows = np.ones((4, 4), np.float32)
    rounds = [LoggedRound(number % 3, 0.7, rows + number, rejected=True) for number in range(50)]
    log(tmp_path / "a.rounds", rounds, header())
    found = read_logs([tmp_path], PAIR, RATIO)
    needed = r"rounds needs at least 2000 tested draft tokens, some 500 rounds of 4.0 .*found '200 tokens in 50 rounds'"
    with pytest.raises(ParameterError, match=needed):
        found.check_enough(2000)
    with pytest.raises(
        ParameterError, match=r"rounds of at least 4 requests that differ, one for each part.* '50 rounds of 3'"
    ):
        found.check_enough(200)


@pytest.fixture
def config(folders: tuple[str, str], tmp_path: Path) -> PredictorConfig:
    """Two devices' folders of one pair, at mixed temperatures."""
    pair = pair_names(*folders)
    logs = tmp_path / "jetson-1", tmp_path / "jetson-2"
    for index, folder in enumerate(logs):
        rounds = rounds_of(range(60 * index, 60 * (index + 1)), 20, (0.7, 1.0, 0.85))
        log(folder / "edge-0" / "00000000-shared_noise.rounds", rounds, header(SHARED, pair))
    target, drafter = folders
    return PredictorConfig(
        target=target,
        drafter=drafter,
        rule="shared_noise",
        out=tmp_path / "predictor.safetensors",
        rounds=logs,
        least_tokens=1000,
        trials=3,
        epochs=30,
        latency_calls=5,
    )


def run(config: PredictorConfig, stages: list[str] | None = None) -> PredictorReport:
    ticks = count()
    told = [] if stages is None else stages
    return train_predictor(config, clock=lambda: next(ticks) / 1e3, progress=False, on_stage=told.append)


def test_a_predictor_trained_from_logs_tells_what_is_true_and_is_for_their_pair(
    config: PredictorConfig, folders: tuple[str, str]
) -> None:
    stages: list[str] = []
    report = run(config, stages)
    assert "2400 rounds of 120 requests in 2 files: 2400 of devices that stop by never" in stages
    assert sum(part.prompts for part in report.parts.values()) == 120, "each request in one part"
    (own,) = (one for one in report.families if one.family == MLP)
    assert set(own.by_temperature) == {"0.7", "0.85", "1"}
    assert SHIPPED not in {one.family for one in report.families}, "there is none for this pair"

    read = read_predictor(config.out)
    pair = pair_names(*folders)
    check_pair(read.info, target_hash=pair.target_hash, drafter_hash=pair.drafter_hash)
    assert read.info.rule is SHARED
    assert read.info.temperatures == (0.7, 0.85, 1.0)
    features = toy(999, 400).features
    told = np.array([read.perceptron.probability(RecordedFeatures(row)) for row in features])
    assert np.abs(told - truth(features)).mean() < 0.06
    guessed = expit(np.log(features[:, 0] / (1.0 - features[:, 0] + 1e-9)))
    assert np.abs(guessed - truth(features)).mean() > 0.15, "which the confidence as it is does not"


@pytest.mark.long
def test_beside_it_stands_the_one_that_comes_with_the_package(
    config: PredictorConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(config)
    shipped = read_predictor(config.out)
    monkeypatch.setattr(train, "shipped_predictors", lambda *_: {SHARED: shipped})
    report = run(replace(config, out=tmp_path / "second.safetensors"))
    quality = {one.family: one.test for one in report.families}
    assert quality[SHIPPED].auc == pytest.approx(quality[MLP].auc, abs=1e-9), "here it is the same"
    assert quality[SHIPPED].raw_loss == pytest.approx(quality[MLP].loss, abs=1e-3), "as calibrated as it says"
    assert quality[AS_IT_IS].raw_loss > quality[MLP].loss
    assert set(report.replays) == {MLP, AS_IT_IS, SHIPPED}
    assert report.replays[SHIPPED]["all"].loss == pytest.approx(report.replays[MLP]["all"].loss, abs=1e-3)


def test_logs_of_another_pair_are_no_logs_of_this_one(config: PredictorConfig) -> None:
    with pytest.raises(ParameterError, match="rounds needs rounds of rule shared_noise, drafter target"):
        run(replace(config, drafter=config.target))
    with pytest.raises(ParameterError, match=r"rounds needs rounds of rule ratio.* found '1200 of rule shared_noise"):
        run(replace(config, rule="ratio", rounds=config.rounds[:1]))
    with pytest.raises(ParameterError, match=r"at least 100000 tested draft tokens, some \d+ rounds of 1\.\d"):
        run(replace(config, least_tokens=100_000))
    assert not config.out.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": Path("p.txt")}, "prompts needs to be left out with logged rounds"),
        ({"most_prompts": 4}, "most_prompts needs to be left out with logged rounds"),
        ({"temperatures": (0.7,)}, "temperatures needs to be left out with logged rounds"),
    ],
)
def test_what_only_says_how_rounds_are_made_is_refused(
    config: PredictorConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(config, **change)  # type: ignore[arg-type]

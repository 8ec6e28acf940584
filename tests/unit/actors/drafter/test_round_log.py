"""A device's files of rounds: bounded, whole, and never in the way."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.drafter.round_log import RoundFiles, RoundLogWriter
from lab.training.predictor.log_reading import read_log
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import DraftFeatures
from outrider.drafting.recalibration import ChainVerdict, SentChain
from outrider.drafting.round_log import LoggedRound, LogHeader, request_number, write_round

HEADER = LogHeader("small", "d" * 64, "large", "t" * 64, AcceptanceRule.GREEDY, "never")
GREEDY, RATIO, SHARED = AcceptanceRule.GREEDY, AcceptanceRule.RATIO, AcceptanceRule.SHARED_NOISE
MOST_BYTES = 2**16


def record(number: int, tokens: int = 4) -> bytes:
    return write_round(LoggedRound(number, 0.0, np.zeros((tokens, 4), np.float32), rejected=False))


def held(folder: Path) -> dict[AcceptanceRule, list[int]]:
    """Generations in a folder's files by rule, as they were written."""
    found, names = dict[AcceptanceRule, list[int]](), set[str]()
    for file in sorted(folder.glob("*.rounds")):
        log = read_log(file.read_bytes())
        assert log is not None
        assert log.unread_bytes == 0
        assert log.header == replace(HEADER, rule=log.header.rule, file=log.header.file)
        assert log.header.file not in names
        names.add(log.header.file)
        found.setdefault(log.header.rule, []).extend(each.generation for each in log.rounds)
    return found


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.rounds"))


def verdict(accepted: int = 1, rule: AcceptanceRule = GREEDY) -> ChainVerdict:
    return ChainVerdict(SentChain(rule, 0.0, (), (DraftFeatures(np.full(4, 0.25)),) * 2), accepted, rejected=True)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([GREEDY, RATIO, SHARED]), st.integers(1, 16)), min_size=400, max_size=900))
def test_the_newest_rounds_are_kept_and_no_more_than_there_may_be(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[AcceptanceRule, int]]
) -> None:
    folder = tmp_path_factory.mktemp("rounds") / "device-0"
    files = RoundFiles(folder, MOST_BYTES, HEADER)
    for number, (rule, tokens) in enumerate(rounds):
        files.write(rule, record(number, tokens))
        if number % 50 == 0:
            files.flush()
            assert size_of(folder) <= MOST_BYTES
    files.close()
    assert size_of(folder) <= MOST_BYTES
    found = held(folder)
    for rule, numbers in found.items():
        written = [number for number, (own, _) in enumerate(rounds) if own is rule]
        assert numbers == written[len(written) - len(numbers) :], "the oldest go, and nothing between"
    kept = sum(len(record(number, rounds[number][1])) for numbers in found.values() for number in numbers)
    assert kept > 0.7 * min(MOST_BYTES, sum(len(record(0, tokens)) for _, tokens in rounds))


def test_a_new_process_goes_on_behind_the_files_of_the_one_before_it(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not ours")
    for start in range(0, 600, 100):
        files = RoundFiles(tmp_path, MOST_BYTES, HEADER)
        for number in range(start, start + 100):
            files.write(RATIO, record(number, 12))
        files.flush()
        found = held(tmp_path)[RATIO]
        files.close()
        assert found == list(range(found[0], start + 100)), "what was handed to the system is there"
    assert found[0] > 0
    assert size_of(tmp_path) <= MOST_BYTES
    assert other.read_text() == "not ours"


def test_nothing_is_written_before_there_is_something_to_write(tmp_path: Path) -> None:
    files = RoundFiles(tmp_path / "device-0", MOST_BYTES, HEADER)
    files.flush()
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_verdicts_become_records_of_their_requests(tmp_path: Path) -> None:
    files, log = RoundFiles(tmp_path, MOST_BYTES, HEADER), RoundLogWriter()
    for name in ("a", "b", "a"):
        log.note(name, verdict())
    log.note("c", verdict(rule=AcceptanceRule.SEMANTIC))
    log.write_waiting(files)
    files.close()
    assert held(tmp_path) == {GREEDY: [request_number(name) for name in ("a", "b", "a")]}


def test_a_disk_that_refuses_is_told_of_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "device-0"
    folder.write_text("in the way")
    files, log = RoundFiles(folder, MOST_BYTES, HEADER), RoundLogWriter()

    def note(count: int) -> None:
        for number in range(count):
            log.note(f"g{number}", verdict())
            log.write_waiting(files)

    with caplog.at_level(logging.INFO):
        note(1200)
    told = [each for each in caplog.records if each.message == "round_log_refused"]
    assert len(told) == 1
    assert "device-0" in told[0].fields["error"]  # type: ignore[attr-defined]

    folder.unlink()
    note(1200)
    files.close()
    assert 600 < len(held(folder)[GREEDY]) <= 1200
    assert len([each for each in caplog.records if each.message == "round_log_refused"]) == 1


def test_whoever_notes_never_waits_for_a_disk_that_is_too_slow(tmp_path: Path) -> None:
    log = RoundLogWriter()
    for number in range(5000):
        log.note(f"g{number}", verdict())
    files = RoundFiles(tmp_path, 2**20, HEADER)
    log.write_waiting(files)
    files.close()
    assert held(tmp_path)[GREEDY] == [request_number(f"g{number}") for number in range(64)], "the rest is left out"

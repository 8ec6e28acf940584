"""The format of logged rounds, and what they are labelled with."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.predictor.log_reading import read_log
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES, DraftFeatures, LazyFeatures
from outrider.drafting.recalibration import ChainVerdict, SentChain
from outrider.drafting.round_log import LoggedRound, LogHeader, logged_round, request_number, write_header, write_round

HEADER = LogHeader("small", "d" * 64, "large", "t" * 64, AcceptanceRule.RATIO, "never")
SINGLES = st.floats(width=32, allow_nan=False)
ROUNDS = st.lists(
    st.builds(
        lambda generation, temperature, rows, rejected: LoggedRound(
            generation, temperature, np.array(rows, np.float32), rejected
        ),
        st.integers(0, 2**64 - 1),
        st.floats(0.0, 2.0),
        st.lists(st.tuples(SINGLES, SINGLES, SINGLES, SINGLES), min_size=1, max_size=16),
        st.booleans(),
    ),
    max_size=6,
)


def written(rounds: list[LoggedRound]) -> list[bytes]:
    return [write_header(HEADER), *map(write_round, rounds)]


@given(ROUNDS)
def test_what_was_written_is_read(rounds: list[LoggedRound]) -> None:
    found = read_log(b"".join(written(rounds)))
    assert found is not None
    assert (found.header, list(found.rounds), found.unread_bytes) == (HEADER, rounds, 0)


@given(ROUNDS, st.data())
def test_of_a_file_that_was_cut_anywhere_all_whole_rounds_are_read(
    rounds: list[LoggedRound], data: st.DataObject
) -> None:
    parts = written(rounds)
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    zeros = data.draw(st.integers(0, 64))
    found = read_log(whole[:cut] + bytes(zeros))
    ends = np.cumsum([len(part) for part in parts])
    kept = int((ends <= cut).sum()) - 1
    if kept < 0:
        assert found is None, "not even whom it is of"
    else:
        assert found is not None
        assert list(found.rounds) == rounds[:kept]
        assert found.unread_bytes == cut + zeros - ends[kept]


@given(ROUNDS.filter(bool), st.data())
def test_nothing_is_read_from_a_damaged_record_on(rounds: list[LoggedRound], data: st.DataObject) -> None:
    parts = written(rounds)
    at = data.draw(st.integers(0, sum(map(len, parts[1:])) - 1))
    damaged = bytearray(b"".join(parts))
    damaged[len(parts[0]) + at] ^= data.draw(st.integers(1, 255))
    found = read_log(bytes(damaged))
    assert found is not None
    before = int((np.cumsum([len(part) for part in parts[1:]]) <= at).sum())
    assert list(found.rounds) == rounds[:before]
    assert found.unread_bytes == sum(map(len, parts[1 + before :]))


def test_a_token_takes_sixteen_bytes_and_nothing_of_its_text() -> None:
    rows = np.ones((3, 4), np.float32)
    assert len(write_round(LoggedRound(1, 0.7, rows, rejected=True))) == 22 + 3 * 16
    sent_chain = json.loads(write_header(HEADER))
    assert set(sent_chain) == {
        "outrider_round_log",
        "features",
        "drafter",
        "drafter_hash",
        "target",
        "target_hash",
        "rule",
        "stops",
        "file",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a table\n", "rounds needs files that devices logged rounds to"),
        (b"[1]\n", "rounds needs files that devices logged rounds to"),
        (b"{}\n", "rounds needs logs of format 1 .* found 'format None with none'"),
        (write_header(HEADER).replace(b'_log": 1', b'_log": 2'), "found 'format 2 with confidence"),
        (write_header(HEADER).replace(b"margin", b"depth"), "found 'format 1 with .*depth"),
        (write_header(HEADER).replace(b"ratio", b"guess"), "rounds needs files that devices logged rounds to"),
        (write_header(HEADER).replace(b'"stops"', b'"state"'), "rounds needs files that devices logged rounds to"),
    ],
)
def test_other_files_are_named_as_such(line: bytes, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_log(line)


ROWS = [np.array([0.9 - depth / 10, 0.1, depth / 10]) for depth in range(4)]
FEATURES = tuple(map(DraftFeatures, ROWS))
TOLD = SentChain(AcceptanceRule.RATIO, 0.7, (1.0, 0.5, 0.0, -0.5), FEATURES)


@pytest.mark.parametrize(
    ("accepted", "rejected", "tokens"),
    [(2, True, 3), (0, True, 1), (4, False, 4), (2, False, 2)],
    ids=["some", "none", "all", "then nobody looked"],
)
def test_the_accepted_and_the_first_rejection_are_logged_and_nothing_behind(
    accepted: int, rejected: bool, tokens: int
) -> None:
    found = logged_round("g", ChainVerdict(TOLD, accepted, rejected))
    assert found is not None
    assert found.features.shape == (tokens, len(FEATURE_NAMES))
    assert np.array_equal(found.features, np.array([each.vector for each in FEATURES[:tokens]], np.float32))
    assert (found.rejected, found.temperature) == (rejected, 0.7)


def test_only_rows_of_tested_tokens_are_worked_out() -> None:
    worked_out = []

    def late(row: int) -> LazyFeatures:
        return LazyFeatures(lambda: worked_out.append(row) or ROWS[row])  # type: ignore[func-returns-value]

    verdict = ChainVerdict(replace(TOLD, features=tuple(map(late, range(4)))), 1, rejected=True)
    assert worked_out == []
    found = logged_round("g", verdict)
    assert worked_out == [0, 1], "each once"
    assert found == logged_round("g", ChainVerdict(TOLD, 1, rejected=True))


def test_what_tells_nothing_is_not_logged() -> None:
    assert logged_round("g", ChainVerdict(TOLD, 0, rejected=False)) is None, "no token was tested"
    assert logged_round("g", ChainVerdict(replace(TOLD, features=()), 2, rejected=True)) is None, (
        "a stop before the first"
    )
    judged = replace(TOLD, rule=AcceptanceRule.SEMANTIC)
    assert logged_round("g", ChainVerdict(judged, 2, rejected=True)) is None, "nobody predicts a judge"


def test_a_request_has_one_number_on_every_device_and_it_is_not_its_id() -> None:
    numbers = [request_number(f"generation-{index}") for index in range(1000)]
    assert numbers == [request_number(f"generation-{index}") for index in range(1000)]
    assert len(set(numbers)) == 1000
    found = logged_round("generation-7", ChainVerdict(TOLD, 2, rejected=True))
    assert found is not None
    assert found.generation == numbers[7]
    assert b"generation" not in write_round(found)

"""The ledger against its recurrence, in exact arithmetic: times are whole 1/64 s, speeds are powers of two."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.contracts.slo import LedgerRecord
from outrider.scheduling.ledger import (
    DEBT_CAP_S,
    SLACK_CAP_S,
    Ledger,
    resumed_ledger,
    round_deadline_at_s,
    wide_cap_s,
)

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens, and the time since the commit before."""

    tokens: int
    after_s: float


SPEEDS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
GAPS_S = st.integers(0, 256).map(lambda ticks: ticks / 64)
COMMITS = st.lists(st.builds(Commit, st.integers(0, 9), GAPS_S), max_size=40)
STARTS_S = st.integers(-6400, 640_000).map(lambda ticks: ticks / 64)


def play(ledger: Ledger, commits: list[Commit], now_s: float) -> tuple[Ledger, float]:
    """The ledger after these commits, and the time it is then."""
    for commit in commits:
        now_s += commit.after_s
        ledger = ledger.committed(commit.tokens, now_s)
    return ledger, now_s


def credits_s(speed: float, commits: list[Commit]) -> tuple[list[float], int]:
    """By the recurrence: the credit after each commit with tokens, the first's included, and how many were late."""
    slack_s, whole_s, waited_s, behind, after = 0.0, 0.0, 0.0, 0, list[float]()
    for commit in commits:
        waited_s += commit.after_s
        if commit.tokens == 0:
            continue
        if after:
            slack_s += commit.tokens / speed - waited_s
            whole_s += commit.tokens / speed - waited_s
        behind += slack_s < 0.0
        slack_s = min(slack_s, SLACK_CAP_S)
        slack_s = max(slack_s, min(-DEBT_CAP_S, whole_s))
        waited_s = 0.0
        after.append(slack_s)
    return after, behind


def counted(commits: list[Commit]) -> tuple[int, float]:
    """Tokens behind the first commit with any, and the time from it to the last one with any."""
    with_tokens = [i for i, commit in enumerate(commits) if commit.tokens]
    if not with_tokens:
        return 0, 0.0
    behind = commits[with_tokens[0] + 1 : with_tokens[-1] + 1]
    return sum(commit.tokens for commit in behind), sum(commit.after_s for commit in behind)


@given(SPEEDS, COMMITS, STARTS_S)
def test_the_ledger_is_its_recurrence(speed: float, commits: list[Commit], start_s: float) -> None:
    ledger, now_s, seen = Ledger(speed), start_s, list[float]()
    for commit in commits:
        now_s += commit.after_s
        ledger = ledger.committed(commit.tokens, now_s)
        seen += [ledger.slack_s(now_s)] if commit.tokens else []
    assert (seen, ledger.times_behind) == credits_s(speed, commits)


@given(SPEEDS, COMMITS, STARTS_S)
def test_no_token_and_no_second_is_lost(speed: float, commits: list[Commit], start_s: float) -> None:
    ledger, _ = play(Ledger(speed), commits, start_s)
    tokens, elapsed_s = counted(commits)
    record = ledger.record()
    if record is None:
        assert not any(commit.tokens for commit in commits)
        return
    assert (record.tokens, record.elapsed_s) == (tokens, elapsed_s)
    assert ledger.kept is (tokens >= speed * elapsed_s)
    assert record.tokens_per_s == (tokens / max(elapsed_s, 1e-9) if tokens else None)


@given(SPEEDS, COMMITS)
def test_who_keeps_the_pace_from_the_anchor_is_never_behind(speed: float, commits: list[Commit]) -> None:
    """Each gap is cut to what the tokens so far allow, with the capped credit: the slowest that keeps every promise."""
    ledger, now_s = Ledger(speed).committed(1, 0.0), 0.0
    for commit in commits:
        now_s = min(now_s + commit.after_s, ledger.deadline_at_s(commit.tokens))
        ledger = ledger.committed(commit.tokens, now_s)
        assert ledger.slack_s(now_s) >= 0.0
    assert ledger.times_behind == 0
    assert ledger.kept


@given(SPEEDS, COMMITS, STARTS_S, st.integers(0, 8))
def test_a_pause_changes_nothing_but_the_time(speed: float, commits: list[Commit], start_s: float, half: int) -> None:
    straight, at_s = play(Ledger(speed), commits, start_s)
    before, paused_at_s = play(Ledger(speed), commits[:half], start_s)
    after, later_s = play(before.paused(64.0), commits[half:], paused_at_s + 64.0)
    assert later_s == at_s + 64.0
    assert after.record() == straight.record()


@given(SPEEDS, COMMITS, STARTS_S)
def test_a_commit_is_late_iff_it_comes_after_its_deadline(speed: float, commits: list[Commit], start_s: float) -> None:
    ledger, now_s = Ledger(speed).committed(3, start_s), start_s
    for commit in commits:
        now_s += commit.after_s
        deadline_at_s, before = ledger.last_at_s + owed_s(ledger, commit.tokens), ledger.times_behind
        ledger = ledger.committed(commit.tokens, now_s)
        late = commit.tokens > 0 and now_s > deadline_at_s
        assert ledger.times_behind == before + late


def owed_s(ledger: Ledger, tokens: int) -> float:
    """From the last commit on, whether or not the response is doomed."""
    return ledger.slack_s(ledger.last_at_s) + tokens / ledger.tokens_per_s


@given(SPEEDS, COMMITS, STARTS_S)
def test_a_response_is_doomed_iff_as_a_whole_it_owes_more_than_the_cap(
    speed: float, commits: list[Commit], start_s: float
) -> None:
    """By all its tokens and all its time, whatever was forgotten meanwhile; back as soon as it owes less."""
    ledger, now_s = Ledger(speed).committed(1, start_s), start_s
    for commit in commits:
        now_s += commit.after_s
        ledger = ledger.committed(commit.tokens, now_s)
        record = ledger.record()
        assert record is not None
        whole_s = record.tokens / speed - record.elapsed_s
        assert ledger.doomed is (whole_s < -DEBT_CAP_S)
        assert ledger.slack_s(ledger.last_at_s) <= whole_s or whole_s >= -DEBT_CAP_S
        due_at_s = ledger.last_at_s + owed_s(ledger, 2)
        assert ledger.deadline_at_s(2.0) == (NEVER if ledger.doomed else due_at_s)


@given(SPEEDS, COMMITS, STARTS_S)
def test_what_is_judged_is_what_is_scheduled(speed: float, commits: list[Commit], start_s: float) -> None:
    """As long as no credit was ever forgotten, a response is behind iff it would end late now."""
    ledger, now_s, forgot = Ledger(speed).committed(1, start_s), start_s, False
    for commit in commits:
        now_s += commit.after_s
        forgot |= bool(commit.tokens) and ledger.slack_s(now_s) + commit.tokens / speed > SLACK_CAP_S
        ledger = ledger.committed(commit.tokens, now_s)
        if not forgot:
            assert ledger.kept is (ledger.slack_s(ledger.last_at_s) >= 0.0)


@given(SPEEDS, COMMITS, STARTS_S)
def test_a_response_that_was_never_behind_was_kept(speed: float, commits: list[Commit], start_s: float) -> None:
    ledger, _ = play(Ledger(speed), commits, start_s)
    assume(ledger.times_behind == 0)
    assert ledger.kept


@given(
    st.floats(0.1, 1e4), st.lists(st.tuples(st.integers(0, 64), st.floats(0.0, 60.0)), max_size=30), st.floats(0.0, 1e6)
)
def test_credit_is_capped_at_any_speed_and_time(speed: float, steps: list[tuple[int, float]], start_s: float) -> None:
    ledger, now_s = Ledger(speed).committed(1, start_s), start_s
    for tokens, gap_s in steps:
        now_s += gap_s
        ledger = ledger.committed(tokens, now_s)
        if tokens:
            assert ledger.slack_s(now_s) <= SLACK_CAP_S + 1e-6
    assert ledger.tokens == sum(tokens for tokens, _ in steps)


@given(SPEEDS, COMMITS, STARTS_S)
def test_what_the_cap_forgot_is_slack_of_the_whole_response(
    speed: float, commits: list[Commit], start_s: float
) -> None:
    ledger, _ = play(Ledger(speed), commits, start_s)
    record, wide = ledger.record(), ledger.widened()
    slack_s, wide_slack_s = (one.slack_s(ledger.last_at_s) for one in (ledger, wide))
    assert wide.widened() == wide
    if record is None:
        assert wide == ledger
        return
    least_s = min(record.tokens / speed - record.elapsed_s, wide_cap_s(speed))
    assert wide_slack_s == pytest.approx(max(slack_s, least_s), abs=1e-5)
    assert wide.committed(1, ledger.last_at_s).times_behind == ledger.times_behind or least_s < 0.0


def test_a_slow_response_that_came_early_may_be_put_off_for_longer() -> None:
    ledger = Ledger(2.0).committed(1, 0.0).committed(40, 1.0)  # 20 s' worth, of which 3 are kept
    assert (ledger.slack_s(1.0), ledger.widened().slack_s(1.0)) == (SLACK_CAP_S, 12.0)
    fast = Ledger(16.0).committed(1, 0.0).committed(160, 1.0)
    assert fast.widened() == fast, "48 tokens are 3 s"
    best_effort = Ledger().committed(1, 0.0).committed(40, 1.0)
    assert best_effort.widened() == best_effort


@given(SPEEDS, COMMITS, STARTS_S, st.floats(0.0, 64.0), st.floats(0.0, 64.0))
def test_a_deadline_is_the_later_the_more_is_expected(
    speed: float, commits: list[Commit], start_s: float, one: float, other: float
) -> None:
    ledger, now_s = play(Ledger(speed).committed(1, start_s), commits, start_s)
    fewer, more = sorted((one, other))
    assert ledger.deadline_at_s(fewer) <= ledger.deadline_at_s(more)
    if not ledger.doomed:
        assert ledger.deadline_at_s(0.0) == now_s + ledger.slack_s(now_s)


@given(COMMITS, STARTS_S)
def test_who_was_promised_nothing_is_never_behind(commits: list[Commit], start_s: float) -> None:
    ledger, now_s = play(Ledger(), commits, start_s)
    assert (ledger.times_behind, ledger.kept) == (0, True)
    assert ledger.deadline_at_s(5.0) == ledger.slack_s(now_s) == NEVER
    assert ledger.tokens == counted(commits)[0], "they are counted all the same"


@given(SPEEDS, COMMITS, COMMITS, STARTS_S, STARTS_S)
def test_a_resumed_response_goes_on_as_if_nothing_had_happened(
    speed: float, before: list[Commit], after: list[Commit], here_s: float, there_s: float
) -> None:
    """On another clock, right after the last commit."""
    first, last_at_s = play(Ledger(speed).committed(2, here_s), before, here_s)
    assume(not before or before[-1].tokens > 0)
    record = first.record()
    assert record is not None
    second = resumed_ledger(speed, record, there_s)
    assert second.record() == record
    assert second.slack_s(there_s) == first.slack_s(last_at_s)
    assert second.kept == first.kept
    on, on_at_s = play(first, after, last_at_s)
    resumed, resumed_at_s = play(second, after, there_s)
    assert resumed.record() == on.record()
    assert resumed.slack_s(resumed_at_s) == on.slack_s(on_at_s)


@given(SPEEDS, COMMITS, st.lists(GAPS_S, min_size=1, max_size=3), STARTS_S)
def test_the_time_that_a_loss_costs_counts(
    speed: float, before: list[Commit], gaps_s: list[float], start_s: float
) -> None:
    """As long as nothing was committed for so long at one place."""
    assume(not before or before[-1].tokens > 0)
    first, last_at_s = play(Ledger(speed).committed(1, start_s), before, start_s)
    record = first.record()
    assert record is not None
    for gap_s in gaps_s:
        record = record.delayed(gap_s)
    resumed = resumed_ledger(speed, record, 7.0).committed(4, 7.0)
    waited = first.committed(4, last_at_s + sum(gaps_s))
    assert resumed.record() == waited.record()


def test_nothing_is_owed_before_the_first_token() -> None:
    ledger = Ledger(8.0)
    assert ledger.committed(0, 5.0) is ledger
    assert (ledger.deadline_at_s(1.0), ledger.record(), ledger.kept) == (NEVER, None, True)
    assert resumed_ledger(8.0, None, 5.0) == ledger
    begun = ledger.committed(3, 5.0)
    assert (begun.deadline_at_s(4.0), begun.record()) == (5.5, LedgerRecord()), "the first tokens took no time"
    assert begun.kept
    assert replace(begun, last_at_s=9.0).kept, "there is no speed yet"


def test_an_example_in_full() -> None:
    ledger = Ledger(4.0, first_due_at_s=9.0)
    assert ledger.deadline_at_s(1.0) == 9.0
    ledger = ledger.committed(1, 10.0)
    assert ledger.deadline_at_s(3.0) == 10.75
    ledger = ledger.committed(3, 10.5)  # 0.25 s early
    assert ledger.deadline_at_s(2.0) == 11.25
    ledger = ledger.committed(4, 10.5)  # 1.25 s early
    ledger = ledger.committed(9, 10.5)  # 3.5 s early: three count
    assert ledger.slack_s(10.5) == 3.0
    ledger = ledger.committed(1, 14.25)  # 0.5 s late
    assert (ledger.times_behind, ledger.deadline_at_s(1.0)) == (1, 14.0)
    assert ledger.kept, "17 tokens in 4.25 s: as a whole it is in time"
    assert ledger.record() == LedgerRecord(tokens=17, elapsed_s=4.25, slack_s=-0.5, times_behind=1)
    ledger = ledger.committed(1, 20.0)  # 6 s late, of which as a whole it owes 5.5
    assert ledger.doomed
    assert (ledger.deadline_at_s(1.0), ledger.slack_s(20.0)) == (NEVER, -5.5)
    ledger = ledger.committed(10, 20.0)
    assert (ledger.doomed, ledger.deadline_at_s(1.0)) == (False, 17.25)


def test_a_debt_that_credit_would_have_paid_is_capped() -> None:
    ledger = Ledger(1.0).committed(1, 0.0).committed(30, 0.0).committed(1, 0.0)
    assert ledger.slack_s(0.0) == 3.0
    late = ledger.committed(1, 20.0)
    assert (late.slack_s(20.0), late.kept, late.doomed) == (-3.0, True, False)


def test_a_pause_before_the_first_token_puts_it_off() -> None:
    assert Ledger(1.0, first_due_at_s=5.0).paused(2.0).deadline_at_s(1.0) == 7.0


@pytest.mark.parametrize(("expected", "deadline_at_s"), [(1.0, 3.5), (4.0, 5.0), (0.0, 3.0)])
def test_a_rounds_own_deadline_counts_from_its_beginning(expected: float, deadline_at_s: float) -> None:
    assert round_deadline_at_s(3.0, expected, 2.0) == deadline_at_s

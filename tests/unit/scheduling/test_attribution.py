"""Late rounds and their causes: WISP eq. 4 and 21."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduling.attribution import SpikeDetector, ViolationCause, response_cause, round_is_late

QUEUE, COMPUTE = ViolationCause.QUEUE, ViolationCause.COMPUTE
TIMES_S = st.lists(st.floats(1e-4, 10.0), max_size=80)


@pytest.mark.parametrize(
    ("tokens_per_s", "tokens", "round_s", "late"),
    [
        (8.0, 4, 0.5, False),  # exactly as promised
        (8.0, 4, 0.51, True),
        (8.0, 5, 0.51, False),
        (8.0, 1, 0.2, True),
        (0.0, 0, 1e9, False),  # best effort
        (1e-6, 0, 1.0, True),  # nothing came at all
    ],
)
def test_a_round_is_late_if_it_was_slower_than_promised(
    tokens_per_s: float, tokens: int, round_s: float, *, late: bool
) -> None:
    assert round_is_late(tokens_per_s, tokens, round_s) is late


@given(st.floats(0.1, 1e3), st.integers(0, 64), st.floats(1e-3, 100.0), st.floats(0.0, 10.0))
def test_more_tokens_or_less_time_never_make_a_round_late(speed: float, tokens: int, round_s: float, by: float) -> None:
    if not round_is_late(speed, tokens, round_s):
        assert not round_is_late(speed, tokens + 1, round_s)
        assert not round_is_late(speed, tokens, max(0.0, round_s - by))
        assert not round_is_late(speed / 2, tokens, round_s)


@pytest.mark.parametrize(
    ("queue", "compute", "cause"), [(3, 1, QUEUE), (1, 3, COMPUTE), (2, 2, QUEUE), (0, 0, QUEUE), (0, 1, COMPUTE)]
)
def test_a_response_is_slow_for_what_most_of_its_late_rounds_were(
    queue: int, compute: int, cause: ViolationCause
) -> None:
    assert response_cause(queue, compute) is cause


def test_a_verification_above_the_recent_mean_is_a_spike() -> None:
    spikes = SpikeDetector()
    assert spikes.cause(1.0) is QUEUE, "there is nothing to compare with"
    spikes.batch(1.0)
    assert [spikes.cause(1.5), spikes.cause(1.51)] == [QUEUE, COMPUTE]
    spikes.batch(1.5)
    assert [spikes.cause(1.87), spikes.cause(1.88)] == [QUEUE, COMPUTE], "the mean is 1.25"


def test_rounds_do_not_count_but_batches() -> None:
    """However many of them were in a slow one, and told of it."""
    spikes = SpikeDetector()
    for _ in range(10):
        spikes.batch(0.1)
    spikes.batch(1.0)
    assert [spikes.cause(1.0) for _ in range(100)] == [COMPUTE] * 100


def test_what_is_slow_for_long_is_no_spike_any_more() -> None:
    spikes = SpikeDetector(window=4)
    for _ in range(100):
        spikes.batch(0.1)
    slow = list[ViolationCause]()
    for _ in range(8):
        spikes.batch(1.0)
        slow.append(spikes.cause(1.0))
    assert slow == [COMPUTE] * 2 + [QUEUE] * 6, "after three of four the mean is 0.775"


@given(TIMES_S, st.integers(1, 60), st.floats(1.0, 3.0))
def test_causes_are_those_of_equation_21(times_s: list[float], window: int, spike: float) -> None:
    spikes = SpikeDetector(window, spike)
    for i, time_s in enumerate(times_s):
        recent = times_s[max(0, i - window) : i]
        expected = bool(recent) and time_s > spike * (sum(recent) / len(recent))
        assert spikes.cause(time_s) is (COMPUTE if expected else QUEUE)
        spikes.batch(time_s)


@given(TIMES_S)
def test_the_papers_window_is_50_and_its_spike_one_and_a_half(times_s: list[float]) -> None:
    ours, papers = SpikeDetector(), SpikeDetector(50, 1.5)
    for time_s in times_s:
        assert ours.cause(time_s) is papers.cause(time_s)
        ours.batch(time_s)
        papers.batch(time_s)

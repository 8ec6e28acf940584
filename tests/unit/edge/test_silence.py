"""When a device doubts its connection: while calls come soon, and else by the gateway's pings alone."""

import pytest

from edge.silence import LinkSilence

IDLE_S, RTT_S = 3.0, 0.05


def called(pause_s: float, rtt_s: float = RTT_S, calls: int = 40) -> tuple[LinkSilence, float]:
    """A link on which calls came at a pace, the last one now."""
    silence, now_s = LinkSilence(IDLE_S, rtt_s), 100.0
    for _ in range(calls):
        now_s += pause_s
        silence.heard(now_s)
        silence.called(now_s)
    return silence, now_s


def noticed_s(silence: LinkSilence, now_s: float) -> float:
    """Time until a link is doubted on which nothing is heard any more."""
    began_s = now_s
    for _ in range(100):
        if silence.is_unanswered(now_s) or silence.is_dead(now_s):
            return now_s - began_s
        if silence.is_late(now_s):
            silence.pinged(now_s)
        left_s = silence.left_s(now_s)
        assert left_s > 0
        now_s += left_s + 1e-9
    raise AssertionError("never")


def test_an_idle_link_is_dead_after_the_gateways_pings_alone() -> None:
    silence = LinkSilence(IDLE_S, RTT_S)
    silence.heard(100.0)
    assert not silence.is_late(102.9)
    assert noticed_s(silence, 100.0) == pytest.approx(IDLE_S)


@pytest.mark.parametrize(("pause_s", "most_s"), [(0.02, 0.31), (0.1, 0.33), (0.3, 0.6), (1.0, 1.5)])
def test_silence_is_noticed_by_the_pace_of_calls(pause_s: float, most_s: float) -> None:
    assert noticed_s(*called(pause_s)) <= most_s


def test_the_first_call_of_a_connection_says_nothing_of_the_pace() -> None:
    assert noticed_s(*called(0.1, calls=1)) <= 0.31
    silence, now_s = called(0.1)
    silence.heard(now_s + 60.0)
    silence.called(now_s + 60.0)
    assert noticed_s(silence, now_s + 60.0) <= 0.33


def test_calls_at_their_usual_pace_cost_no_ping() -> None:
    silence, now_s = called(0.5)
    assert not silence.is_late(now_s + 0.6)


def test_pings_get_rarer_once_no_call_comes_and_stop() -> None:
    silence, now_s = called(0.1)
    began_s, pings = now_s, 0
    while now_s - began_s < 60.0:
        if silence.is_late(now_s):
            silence.pinged(now_s)
            pings += 1
            now_s += RTT_S
            silence.ponged(RTT_S)
            silence.heard(now_s)
        now_s += min(silence.left_s(now_s), 0.5) + 1e-9
        silence.heard(now_s - 0.5 if now_s - began_s > 5.5 else 0.0)  # the gateway's own pings
    assert 5 <= pings <= 12


def test_a_slow_link_is_given_its_own_round_trips() -> None:
    silence, now_s = called(0.1, rtt_s=0.8)
    silence.pinged(now_s + 0.2)
    assert not silence.is_unanswered(now_s + 2.5)
    assert silence.is_unanswered(now_s + 2.7)
    assert silence.dial_s == pytest.approx(8.0)
    for _ in range(10):
        silence.ponged(0.02)
    assert silence.dial_s == pytest.approx(1.0)


def test_whatever_is_heard_answers_a_ping() -> None:
    silence, now_s = called(0.1)
    silence.pinged(now_s + 0.2)
    silence.heard(now_s + 0.3)
    assert not silence.is_unanswered(now_s + 1.0)

"""What a tenant has left: rates over any autonomous run of time, what is under way, and who falls silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.tenants.quotas import OverQuota, QuotaLimits, QuotaRequest, Quotas, RateLeft

RATE = QuotaLimits(requests_per_minute=6.0)
TOKENS = QuotaLimits(tokens_per_minute=600.0)
TWO = QuotaLimits(concurrent_responses=2)
ONE = QuotaRequest("t", 1, 10)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.sampled_from("ab")), max_size=80))
def test_over_any_autonomous_run_no_more_than_a_minutes_worth_beyond_the_rate(steps: list[tuple[float, str]]) -> None:
    quotas, now_s, let_in = Quotas(), 0.0, list[float]()
    for i, (pause_s, owner) in enumerate(steps):
        now_s += pause_s
        answer = quotas.ask(owner, str(i), ONE, RATE, now_s)
        if answer is None:
            let_in.append(now_s)
        else:
            assert quotas.ask(owner, "again", ONE, RATE, now_s + answer.retry_after_s) is None, "it kept its word"
            let_in.append(now_s + answer.retry_after_s)
            now_s += answer.retry_after_s
    for i, begin_s in enumerate(let_in):
        for count, end_s in enumerate(let_in[i:], 1):
            assert count <= 6.0 * ((end_s - begin_s) / 60.0 + 1.0) + 1e-6


def test_estimates_are_settled_by_what_was_used() -> None:
    quotas = Quotas()
    assert quotas.ask("a", "1", QuotaRequest("t", 1, 500), TOKENS, 0.0) is None
    assert quotas.ask("a", "2", QuotaRequest("t", 1, 200), TOKENS, 0.0) == OverQuota(
        "tokens_per_minute", 600.0, 200.0, 10
    )
    quotas.settle("a", "1", 50)
    quotas.settle("a", "1", 0)  # once
    assert quotas.ask("b", "2", QuotaRequest("t", 1, 550), TOKENS, 0.0) is None, "whoever asks, the bucket is one"
    assert quotas.ask("b", "3", QuotaRequest("other", 1, 600), TOKENS, 0.0) is None, "another's is another one"


def test_what_may_need_more_than_a_minutes_worth_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    quotas = Quotas()
    assert quotas.ask("a", "1", QuotaRequest("t", 1, 1200), TOKENS, 0.0) is None
    quotas.settle("a", "1", 1200)
    refused = quotas.ask("a", "2", ONE, TOKENS, 0.0)
    assert refused is not None
    assert refused.retry_after_s == 61
    assert quotas.ask("a", "2", ONE, TOKENS, 61.0) is None


def test_nothing_is_taken_of_one_who_is_refused() -> None:
    quotas, both = Quotas(), QuotaLimits(requests_per_minute=6.0, tokens_per_minute=600.0)
    quotas.ask("a", "1", QuotaRequest("t", 1, 600), both, 0.0)
    for i in range(20):
        assert quotas.ask("a", f"x{i}", QuotaRequest("t", 1, 600), both, 0.0) is not None
    assert [quotas.ask("a", f"y{i}", QuotaRequest("t", 1, 1), both, 60.0) is None for i in range(7)] == [True] * 6 + [
        False
    ]


@pytest.mark.parametrize("ended", ["settled", "silent", "left out"])
def test_so_many_responses_at_a_time_over_all_owners(ended: str) -> None:
    quotas = Quotas()
    assert quotas.ask("a", "1", ONE, TWO, 0.0) is None
    assert quotas.ask("b", "2", ONE, TWO, 0.0) is None
    assert quotas.ask("b", "3", ONE, TWO, 0.0) == OverQuota("concurrent_responses", 2, 3, 1)
    assert quotas.ask("b", "4", QuotaRequest("t", 3, 10), TWO, 0.0) is not None
    if ended == "settled":
        quotas.settle("a", "1", 3)
    elif ended == "left out":
        quotas.renew("a", {}, 1.0)
    else:
        quotas.renew("b", {"2": ONE}, 20.0)
        quotas.expire(20.0, 15.0)
    assert quotas.under_way("t") == 1
    assert quotas.ask("b", "3", ONE, TWO, 20.0) is None


def test_one_that_was_restarted_learns_what_is_under_way() -> None:
    quotas = Quotas()
    quotas.renew("a", {"1": ONE, "2": ONE}, 0.0)
    assert quotas.ask("b", "3", ONE, TWO, 0.0) is not None
    assert quotas.ask("a", "2", ONE, TWO, 0.0) is None, "its own word may be there before its question"


def test_a_rate_that_is_changed_holds_at_once() -> None:
    quotas = Quotas()
    for i in range(6):
        quotas.ask("a", str(i), ONE, RATE, 0.0)
    more, less = QuotaLimits(requests_per_minute=60.0), QuotaLimits(requests_per_minute=1.0)
    assert [quotas.ask("a", "x", ONE, more, 0.0) is None for _ in range(55)] == [True] * 54 + [False]
    assert [quotas.ask("a", "x", ONE, less, 3600.0) is None for _ in range(2)] == [True, False]


def test_what_is_left_of_each_rate() -> None:
    quotas, both = Quotas(), QuotaLimits(requests_per_minute=6.0, tokens_per_minute=600.0)
    assert quotas.ask("a", "1", QuotaRequest("t", 1, 450), both, 0.0) is None
    assert quotas.left("t", both, 5.0) == {
        "requests": RateLeft(6.0, 5.5, 5.0),
        "tokens": RateLeft(600.0, 200.0, 40.0),
    }
    assert quotas.left("t", QuotaLimits(concurrent_responses=2), 5.0) == {}

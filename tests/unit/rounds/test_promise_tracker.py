"""The promise of one response, on a clock that is driven by hand."""

from math import inf

import pytest

from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass
from outrider.rounds.promise_tracker import Judgement, PromiseTracker, VerifyTerms
from outrider.scheduling.attribution import SpikeDetector, ViolationCause
from outrider.scheduling.ledger import DeadlineRule, resumed_ledger
from outrider.selection.situation import SpeedPromise

SPEED_4 = SloClass("speed_4", 4.0)
QUEUE, COMPUTE = ViolationCause.QUEUE, ViolationCause.COMPUTE


class Made:
    """A tracker and what it works with."""

    def __init__(
        self,
        slo: SloClass = SPEED_4,
        rule: DeadlineRule = DeadlineRule.LEDGER,
        ledger: LedgerRecord | None = None,
        spikes: SpikeDetector | None = None,
    ) -> None:
        self.now_s = 100.0
        first_due_at_s = self.now_s + 3.0 if slo.tokens_per_s else inf
        opened = resumed_ledger(slo.tokens_per_s, ledger, self.now_s, first_due_at_s)
        self.tracker = PromiseTracker(opened, rule, spikes or SpikeDetector())
        self.rounds = 0

    def round(self, tokens: int, round_s: float, verify_s: float = 0.1, yielded: int | None = None) -> Judgement | None:
        """One verified round, from now on."""
        self.now_s += round_s
        self.rounds += 1
        self.tracker.committed(tokens, self.now_s)
        counted = tokens if yielded is None else yielded
        return self.tracker.judged(counted, round_s, verify_s, first=self.rounds == 1)

    @property
    def promise(self) -> SpeedPromise | None:
        """As it stands now."""
        return self.tracker.promise(self.now_s)


def test_nothing_is_owed_and_nothing_judged_before_the_first_token() -> None:
    made = Made()
    assert made.tracker.terms(99.0, 5.0) == VerifyTerms(103.0, 5.0, 4.0), "the first token's own, and the promise"
    assert Made(rule=DeadlineRule.ROUND).tracker.terms(99.0, 5.0) == VerifyTerms(103.0, 5.0, 4.0), "likewise"
    assert (made.promise, made.tracker.record) == (None, None)
    assert made.round(1, round_s=60.0) is None, "a long prefill breaks no promise"
    assert made.tracker.record == LedgerRecord()


def test_a_round_is_judged_alone_and_the_response_as_a_whole() -> None:
    made = Made()
    made.round(1, 1.0)
    assert made.round(4, 0.5) == Judgement(None, behind=False)  # 0.5 s early
    assert made.round(1, 0.5) == Judgement(QUEUE, behind=False), "slow by itself, but there is credit"
    assert made.round(1, 0.75) == Judgement(QUEUE, behind=True)
    assert made.round(1, 0.25) == Judgement(None, behind=True), "as much as before"
    assert made.round(4, 0.5) == Judgement(None, behind=False), "it has caught up"
    assert made.tracker.record == LedgerRecord(tokens=11, elapsed_s=2.5, slack_s=0.25, times_behind=2)


def test_a_late_round_was_computed_long_or_had_to_wait() -> None:
    made = Made(spikes=(spikes := SpikeDetector()))
    made.round(1, 1.0)
    for _ in range(4):
        spikes.batch(0.1)
        made.round(1, 0.25, verify_s=0.1)
    assert made.round(1, 1.0, verify_s=0.9) == Judgement(COMPUTE, behind=True)
    assert made.round(1, 1.0, verify_s=0.1) == Judgement(QUEUE, behind=True)
    made.round(9, 0.1)
    assert made.round(1, 0.1, verify_s=0.9) == Judgement(None, behind=False), "a spike alone breaks no promise"


def test_who_fell_behind_with_a_devices_token_is_told_with_the_round_it_came_with() -> None:
    made = Made()
    made.round(1, 1.0)
    made.now_s += 0.5
    made.tracker.committed(1, made.now_s)  # a correction, sent before its block is verified
    assert made.round(0, 0.1, yielded=1) == Judgement(None, behind=True)
    made.tracker.committed(4, made.now_s)
    assert made.round(1, 0.1) == Judgement(None, behind=False), "told once for each commit"


@pytest.mark.parametrize("rule", DeadlineRule)
def test_best_effort_is_owed_nothing(rule: DeadlineRule) -> None:
    made = Made(BEST_EFFORT, rule)
    for tokens in (1, 1, 0, 1):
        assert made.round(tokens, 1e6) is None
    assert made.tracker.terms(5.0, 2.0) == VerifyTerms(inf, 2.0, 0.0)
    assert made.promise is None
    assert made.tracker.record == LedgerRecord(tokens=2, elapsed_s=3e6)


def test_terms_are_the_ledgers_or_the_rounds_own() -> None:
    by_ledger, by_round = Made(), Made(rule=DeadlineRule.ROUND)
    for made in (by_ledger, by_round):
        made.round(1, 1.0)  # at 101
        made.round(3, 0.5)  # 0.25 s early
        made.now_s += 0.125
    assert by_ledger.tracker.terms(101.5, 2.0) == VerifyTerms(102.25, 2.0, 4.0)
    assert by_round.tracker.terms(101.5, 2.0) == VerifyTerms(102.0, 2.0, 4.0)
    assert by_ledger.promise == by_round.promise == SpeedPromise(4.0, 0.125)


def test_a_resumed_response_keeps_its_promise() -> None:
    record = LedgerRecord(tokens=10, elapsed_s=2.0, slack_s=-0.5, times_behind=2)
    made = Made(ledger=record)
    assert made.tracker.record == record
    assert made.promise == SpeedPromise(4.0, -0.5)
    assert made.tracker.terms(100.0, 1.0).deadline_at_s == 99.75
    made.rounds = 5
    assert made.round(1, 0.125) == Judgement(None, behind=True), "for what the loss cost"
    assert made.round(3, 0.125) == Judgement(None, behind=False)
    assert made.tracker.record == LedgerRecord(14, 2.25, 0.25, 3)


def test_while_kv_is_short_a_response_may_be_further_ahead() -> None:
    """40 tokens at 4 tokens/s that came in a second: 9 s of slack, of which 3 s are kept otherwise."""
    short = False
    ledger = resumed_ledger(4.0, None, 0.0)
    tracker = PromiseTracker(ledger, DeadlineRule.LEDGER, SpikeDetector(), lambda: short)
    tracker.committed(1, 0.0)
    tracker.committed(40, 1.0)
    assert tracker.deadline_at_s(1.0, 4.0) == 5.0
    short = True
    assert tracker.deadline_at_s(1.0, 4.0) == 11.0


def test_slack_that_was_used_while_kv_was_short_is_no_debt_later() -> None:
    """40 tokens at 2 tokens/s by 8 s: due at 22 s with four more. They come at 19 s, and KV is no longer short."""
    short = True
    tracker = PromiseTracker(resumed_ledger(2.0, None, 0.0), DeadlineRule.LEDGER, SpikeDetector(), lambda: short)
    tracker.committed(1, 0.0)
    tracker.committed(40, 8.0)
    assert tracker.deadline_at_s(8.0, 4.0) == tracker.deadline_at_s(8.0, 4.0) == 22.0, "used once"
    short = False
    tracker.committed(4, 19.0)
    assert tracker.record == LedgerRecord(tokens=44, elapsed_s=19.0, slack_s=3.0, times_behind=0)
    assert tracker.promise(20.0) == SpeedPromise(2.0, 2.0)
    assert tracker.deadline_at_s(20.0, 4.0) == 24.0

"""Who is let in, waits or is refused: nobody is lost, bounds are kept, and best effort delays no promise."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.admission.admission import Admission
from outrider.admission.decisions import ClassAdmission, ScarceResource
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import RoundShape
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.slo import BEST_EFFORT, SloClass
from tests.unit.admission.asking import (
    EIGHT,
    FOUR,
    RULES,
    TENTH_PER_BLOCK,
    TWO,
    VERIFIER,
    admission,
    ask,
    asked,
    begun,
    refused,
)

CLASSES = (TWO, FOUR, EIGHT, BEST_EFFORT)


def test_promises_are_let_in_as_far_as_they_fit_the_load() -> None:
    to = admission(max_active=100, max_load=0.801)
    decisions = ask(to, *(asked(f"r{i}", EIGHT) for i in range(12)))
    assert begun(decisions) == [f"r{i}" for i in range(10)], "0.08 each, of 0.8"
    assert refused(decisions) == []
    assert to.report().load == pytest.approx(0.8, rel=1e-3)


def test_best_effort_needs_no_load() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"p{i}", EIGHT) for i in range(20)))
    assert begun(ask(to, *(asked(f"b{i}") for i in range(30)))) == [f"b{i}" for i in range(30)]


def test_an_idle_verifier_takes_any_promise_and_no_second_one_beside_it() -> None:
    to, absurd = admission(), SloClass("absurd", 5000.0)
    assert begun(ask(to, asked("a", absurd))) == ["a"]
    assert begun(ask(to, asked("b", TWO))) == []
    to.end("a", 1.0)
    assert begun(to.decide(1.0, VERIFIER)) == ["b"]


# A pass takes 0.1 s whatever is in it: 8 tokens/s and half a round drafting cannot be kept, 2 tokens/s can.
SLOW = VerifierNow(LinearCostModel(0.01, 0.0, 0.0, 0.1), RoundShape(rows=1.0, tokens=1.0, away_s=0.03, rounds=1))
VAIN = SloClass("speed_10", 10.0)


def test_nobody_waits_for_a_promise_in_vain_or_has_shorter_passes_for_it() -> None:
    to = admission()
    vain, two = asked("vain", VAIN), asked("two", TWO)
    assert begun(ask(to, vain, two, verifier=SLOW)) == ["two"], "whose promise can be kept goes first"
    assert begun(to.decide(9.9, SLOW)) == [], "it never goes beside others, however long it waits"
    assert begun(ask(to, asked("next", TWO, at_s=9.9), now_s=9.9, verifier=SLOW)) == ["next"], "nothing is kept for it"
    to.end("two", 9.95)
    to.end("next", 9.95)
    assert begun(to.decide(9.95, SLOW)) == ["vain"], "an idle verifier does what it can"
    beside = ask(to, asked("beside", TWO, at_s=9.96), asked("more", VAIN, at_s=9.96), now_s=9.96, verifier=SLOW)
    assert begun(beside) == ["beside"]
    assert to.report().limit == pytest.approx(RULES.max_load * (1.0 - 0.1 / (1.0 / 2.0 - 0.03))), "that of 2 tokens/s"


def test_a_promise_broken_in_vain_makes_its_class_no_dearer() -> None:
    to = admission()
    ask(to, asked("vain", VAIN), verifier=SLOW)
    to.end("vain", 1.0, 100, kept=False)
    ask(to, asked("again", VAIN, at_s=2.0), now_s=2.0)
    assert to.report().limit == pytest.approx(RULES.max_load, rel=1e-3)


def test_who_found_no_room_in_time_is_refused_and_told_why() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(11)))
    assert to.due_at_s == 10.0
    assert refused(to.decide(9.9, VERIFIER)) == []
    (found,) = to.decide(10.0, VERIFIER).refused
    assert (found.name, found.slo, found.waited_s, found.shortage.resource) == ("r10", EIGHT, 10.0, ScarceResource.LOAD)
    assert found.message.startswith("speed_8 needs 0.080 verifier seconds per second, found 0.800 of 0.800 promised")
    assert to.waiting == 0


def test_when_to_come_back_is_when_what_is_missing_should_be_free() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(11)))
    (found,) = to.decide(10.0, VERIFIER).refused
    freed_per_s = 0.8 / (128 / 8)  # all of it in the time of a response: 128 tokens are expected at first
    assert found.retry_after_s == -(-0.08 // freed_per_s) == 2


def test_one_lowered_waits_for_each_of_its_classes_in_turn() -> None:
    to = admission(max_active=100)
    ask(
        to,
        *(asked(f"r{i}", EIGHT) for i in range(10)),
        asked("list", EIGHT, BEST_EFFORT),
    )
    assert begun(to.decide(9.9, VERIFIER)) == []
    (found,) = to.decide(10.0, VERIFIER).admitted
    assert (found.name, found.slo) == ("list", BEST_EFFORT)
    report = to.report().classes
    assert (report["speed_8"].lowered, report["best_effort"].admitted) == (1, 1)


def test_a_class_that_is_waited_for_as_a_fallback_only_is_reported() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(10)), *(asked(f"f{i}", FOUR) for i in range(5)))
    to.decide(0.0, VERIFIER)
    ask(to, asked("list", EIGHT, TWO))
    to.decide(10.0, VERIFIER)
    report = to.report().classes
    assert sum(each.waiting for each in report.values()) == to.waiting > 0
    assert report["speed_2"].waiting == 1


def test_a_time_to_the_first_token_is_shared_by_the_classes() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(10)))
    ask(to, asked("soon", EIGHT, TWO, first_token_s=2.0), asked("late", EIGHT, first_token_s=60.0))
    assert to.due_at_s == 1.0
    to.decide(1.0, VERIFIER)
    assert to.due_at_s == 2.0
    assert refused(to.decide(2.0, VERIFIER)) == ["soon"]
    assert to.due_at_s == 10.0, "no longer than anybody"


def test_a_resumed_response_goes_first_and_needs_a_place_only() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(11)))
    assert begun(ask(to, asked("again", EIGHT, at_s=5.0, resumed=True), now_s=5.0)) == ["again"]
    full = admission(max_active=2, best_effort_floor=0.0)
    ask(full, asked("a", TWO), asked("b", TWO), asked("c", TWO))
    assert ask(full, asked("again", TWO, at_s=1.0, resumed=True), now_s=1.0).admitted == ()
    assert refused(full.decide(50.0, VERIFIER)) == ["c"], "whose client has been answered is not refused"
    full.end("a", 51.0)
    assert begun(full.decide(51.0, VERIFIER)) == ["again"]


def test_a_cheap_promise_passes_a_dear_one_for_half_of_its_wait() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(9)), asked("x", TWO), asked("y", TWO))
    assert to.report().load == pytest.approx(0.76, rel=1e-3)
    dear = asked("dear", EIGHT)
    assert begun(ask(to, dear, asked("cheap", TWO), now_s=0.0)) == ["cheap"]
    to.end("cheap", 4.0)
    assert begun(ask(to, asked("next", TWO, at_s=4.9), now_s=4.9)) == ["next"]
    to.end("next", 5.0)
    assert begun(ask(to, asked("late", TWO, at_s=5.0), now_s=5.0)) == [], "what is free is kept for who waits longest"
    to.end("x", 6.0)
    to.end("y", 6.0)
    assert begun(to.decide(6.0, VERIFIER)) == ["dear"]


def test_best_effort_makes_room_for_promises_down_to_its_floor() -> None:
    to = admission(best_effort_floor=0.2)
    assert len(begun(ask(to, *(asked(f"b{i}", at_s=float(i)) for i in range(10)), now_s=10.0))) == 10
    for i in range(8):
        decisions = ask(to, asked(f"p{i}", TWO, at_s=11.0 + i), now_s=11.0 + i)
        assert begun(decisions) == [f"p{i}"], "at once, however long best effort takes"
        assert decisions.suspended == (f"b{9 - i}",), "who has done least"
        assert to.active == 10
    assert begun(ask(to, asked("p8", TWO, at_s=20.0), now_s=20.0)) == []
    to.end("b0", 21.0)
    decisions = to.decide(21.0, VERIFIER)
    assert (begun(decisions), decisions.continued) == ([], ("b9",)), "the floor is best effort's"
    to.end("p0", 22.0)
    assert begun(to.decide(22.0, VERIFIER)) == ["p8"]


def test_best_effort_takes_what_promises_leave() -> None:
    to = admission(best_effort_floor=0.1)
    ask(to, *(asked(f"p{i}", TWO) for i in range(12)), asked("b0"), asked("b1"))
    report = to.report().classes
    assert (report["speed_2"].active, report["best_effort"].active) == (9, 1)
    for i in range(12):
        to.withdraw(f"p{i}")
        to.end(f"p{i}", 1.0)
    to.decide(1.0, VERIFIER)
    assert to.report().classes["best_effort"].active == 2


def test_one_that_was_suspended_and_ends_is_forgotten() -> None:
    to = admission(max_active=2)
    ask(to, asked("b0"), asked("b1", at_s=0.1), now_s=0.2)
    assert ask(to, asked("p", TWO, at_s=1.0), now_s=1.0).suspended == ("b1",)
    to.end("b1", 2.0)
    to.end("p", 2.0)
    assert to.decide(2.0, VERIFIER).continued == ()
    assert to.active == 1


def test_a_response_that_nobody_reads_gives_its_promise_to_others_and_gets_it_back_when_it_is_read() -> None:
    to = admission(max_active=100, max_load=0.161)  # two of 8 tokens/s
    assert begun(ask(to, *(asked(name, EIGHT) for name in "abc"))) == ["a", "b"]
    to.stall("a", 1.0)
    assert begun(to.decide(1.0, VERIFIER)) == ["c"]
    assert (to.active, to.report().stalled) == (2, 1)
    to.unstall("a", 3.0)
    assert to.decide(3.0, VERIFIER).continued == (), "what it had is others' now"
    to.ask(asked("d", EIGHT, at_s=3.0))
    to.end("b", 4.0)
    decisions = to.decide(4.0, VERIFIER)
    assert (decisions.continued, begun(decisions)) == (("a",), []), "before what has not begun"
    to.stall("a", 5.0)
    to.end("a", 6.0)
    assert (to.report().stalled, begun(to.decide(6.0, VERIFIER))) == (0, ["d"])


def test_best_effort_that_nobody_reads_gives_its_place_to_best_effort() -> None:
    to = admission(max_active=2, best_effort_floor=0.0)
    assert begun(ask(to, *(asked(name) for name in "abcd"))) == ["a", "b"]
    to.stall("a", 1.0)
    to.stall("b", 1.0)
    assert begun(to.decide(1.0, VERIFIER)) == ["c", "d"]
    to.unstall("b", 2.0)
    to.end("c", 3.0)
    assert to.decide(3.0, VERIFIER).continued == ("b",)


def test_those_that_nobody_reads_leave_others_their_room_to_wait() -> None:
    to = admission(max_active=2, best_effort_floor=0.0, max_waiting=1)
    for name in ("r0", "r1", "r2", "r3"):
        assert begun(ask(to, asked(name))) == [name]
        to.stall(name, 0.0)
    assert begun(ask(to, asked("a"), asked("b"), asked("c"))) == ["a", "b"]
    assert to.waiting == 1


def test_how_long_a_reader_stood_still_says_nothing_of_how_long_responses_take() -> None:
    def waits_s(stalled_s: float) -> int:
        to = admission(max_active=1, best_effort_floor=0.0, max_waiting=0)
        ask(to, asked("a"))
        to.stall("a", 1.0)
        to.unstall("a", 1.0 + stalled_s)
        to.decide(1.0 + stalled_s, VERIFIER)
        to.end("a", 2.0 + stalled_s, 30)
        later_s = 3.0 + stalled_s
        ask(to, asked("b", at_s=later_s), now_s=later_s)
        (no,) = ask(to, asked("c", at_s=later_s), now_s=later_s).refused
        return no.retry_after_s

    assert waits_s(1000.0) == waits_s(0.0)


def test_more_than_may_wait_are_refused_at_once_best_effort_first() -> None:
    to = admission(max_active=1, best_effort_floor=0.0, max_waiting=2)
    ask(to, asked("p0", TWO))
    assert refused(ask(to, asked("b0"), asked("b1", at_s=0.1), now_s=0.1)) == []
    decisions = ask(to, asked("p1", TWO, at_s=0.2), now_s=0.2)
    assert [(one.name, one.shortage.resource) for one in decisions.refused] == [("b1", ScarceResource.QUEUE)]
    assert refused(ask(to, asked("b2", at_s=0.3), now_s=0.3)) == ["b2"]
    assert decisions.refused[0].message.startswith("best_effort needs a place in the queue, found 2 of 2 taken")


def test_what_fits_into_memory_is_what_is_expected_of_a_class() -> None:
    small = VerifierNow(TENTH_PER_BLOCK, RoundShape(rounds=1), kv_tokens=1000, block_tokens=16)
    to = admission(max_active=100)
    for i in range(200):
        to.ask(asked(f"short{i}", TWO))
        to.decide(0.0, small)
        to.withdraw(f"short{i}")
        to.end(f"short{i}", 1.0, 10)
    one = 10 / 2 + 16 / 2  # its output as far as it has come, and half a block
    many = ask(to, *(asked(f"r{i}") for i in range(100)), verifier=small)
    assert to.report().kv_tokens <= 1000
    assert len(many.admitted) > 0.8 * 1000 / one / 8, "best effort had no lengths of its own: those of all"
    promised = ask(to, *(asked(f"p{i}", TWO) for i in range(20)), verifier=small)
    assert len(promised.admitted) == 20
    assert promised.suspended


def test_memory_without_a_free_position_is_told() -> None:
    full = VerifierNow(TENTH_PER_BLOCK, RoundShape(rounds=1), kv_tokens=100, block_tokens=16)
    to = admission(max_active=100)
    ask(to, asked("a", TWO), asked("b", TWO), verifier=full)
    (found,) = to.decide(10.0, full).refused
    assert (found.name, found.shortage.resource) == ("b", ScarceResource.MEMORY)
    assert "positions" in found.message


def test_open_rules_let_in_whatever_has_a_place() -> None:
    to = admission(weighs=False, max_active=40, best_effort_floor=0.0)
    full = VerifierNow(TENTH_PER_BLOCK, RoundShape(rounds=1), kv_tokens=100)
    assert len(ask(to, *(asked(f"r{i}", EIGHT) for i in range(45)), verifier=full).admitted) == 40


def test_broken_promises_lower_the_limit_and_kept_ones_raise_it() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(10)))
    before = to.report().limit
    to.end("r0", 1.0, 100, kept=False)
    ask(to, asked("x", EIGHT, at_s=1.0), now_s=1.0)
    lowered = to.report().limit
    assert lowered < before
    assert to.report().classes["speed_8"].late == 1
    for i in range(1, 10):
        to.end(f"r{i}", 2.0, 100, kept=True)
    to.decide(2.0, VERIFIER)
    assert lowered < to.report().limit <= before
    raised = to.report().limit
    to.end("x", 3.0)
    ask(to, asked("y", EIGHT, at_s=3.0), now_s=3.0)
    assert to.report().limit == raised, "one that was cancelled says nothing"


def test_a_class_that_comes_late_makes_itself_dearer_and_no_slower_one() -> None:
    to = admission(max_active=100)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(10)))
    full = to.report().limit
    for i in range(10):
        to.end(f"r{i}", 1.0, 100, kept=False)
    ask(to, asked("two", TWO, at_s=1.0), now_s=1.0)
    assert to.report().limit == pytest.approx(full, rel=1e-3)
    ask(to, asked("eight", EIGHT, at_s=2.0), now_s=2.0)
    assert to.report().limit == pytest.approx(0.94**10 * full, rel=1e-3)


def test_one_in_vain_is_tried_again_in_the_end() -> None:
    """A class that was late so often that nothing is left to it, and is refused ever since."""
    to, name = admission(max_active=100, max_load=0.4001, max_wait_s=1.0), "speed_20"
    dear = SloClass(name, 20.0)  # 0.2 of 0.4
    for number in range(14):
        ask(to, asked(f"r{number}", dear, at_s=float(number)), now_s=float(number))
        to.end(f"r{number}", number + 0.5, 100, kept=False)
    ask(to, asked("beside", TWO, at_s=20.0), now_s=20.0)
    begun_after = 0
    while not begun(ask(to, asked(f"n{begun_after}", dear, at_s=20.0 + begun_after), now_s=20.0 + begun_after)):
        begun_after += 1
        assert begun_after < 200
    assert begun_after > 10


def asked_at_random(
    classes: Sequence[SloClass], every_s: float, verifier: VerifierNow = VERIFIER
) -> Mapping[str, ClassAdmission]:
    """What became of 4,000 responses of 32 tokens, one after the other, each of a class at random."""
    chance, to = Random(1), admission(max_active=100, max_wait_s=4.0)
    ends: list[tuple[float, str]] = []
    for tick in range(4000):
        now_s = tick * every_s
        for _, name in [end for end in ends if end[0] <= now_s]:
            to.end(name, now_s, 32)
        ends = [end for end in ends if end[0] > now_s]
        slo = chance.choice(classes)
        for one in ask(to, asked(f"r{tick}", slo, at_s=now_s), now_s=now_s, verifier=verifier).admitted:
            ends.append((now_s + 32 / one.slo.tokens_per_s, one.name))
    return to.report().classes


def test_classes_are_refused_alike_where_room_comes_in_small_pieces() -> None:
    """Half as much again as fits, in four classes, ten of the fastest at once: these do not pay for the others."""
    found = asked_at_random((TWO, FOUR, SloClass("speed_6", 6.0), EIGHT), 0.25)  # 1.28 verifier seconds in a second
    shares = {name: one.refused / one.asked for name, one in found.items()}
    assert 0.2 < sum(shares.values()) / 4 < 0.6
    assert max(shares.values()) - min(shares.values()) < 0.12, shares


def test_classes_are_given_time_alike_where_a_fast_one_makes_all_passes_short() -> None:
    """Were refusals alike, the fastest would take nearly all of the time, and fewer would be let in of all."""
    slow = VerifierNow(LinearCostModel(0.01, 0.0, 0.0, 0.1), RoundShape(rounds=1))  # leaves 0.8, 0.6 and 0.4 to rows
    found = asked_at_random((TWO, FOUR, SloClass("speed_6", 6.0)), 0.125, slow)
    admitted = {name: one.admitted / one.asked for name, one in found.items()}
    assert admitted["speed_2"] > admitted["speed_4"] > admitted["speed_6"] > 0.02, "none is shut out"
    given = [admitted[f"speed_{speed}"] / useful for speed, useful in ((2, 0.8), (4, 0.6), (6, 0.4))]
    assert max(given) < 2.5 * min(given), given
    assert 3.0 * min(admitted.values()) < sum(admitted.values()), (
        "more than if all were let in as seldom as the dearest"
    )


names = st.integers(0, 30).map("r{}".format)
events = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "leaves", "ends", "wait", "stalls", "reads"]),
        names,
        st.lists(st.sampled_from(CLASSES), min_size=1, max_size=3, unique=True),
        st.floats(0.0, 6.0),
        st.booleans(),
    ),
    max_size=60,
)


def read_or_not(to: Admission, state: dict[str, str], what: str, name: str, now_s: float) -> None:
    if what == "stalls" and state.get(name) in ("active", "suspended"):
        to.stall(name, now_s)
        state[name] = "stalled"
    elif what == "reads" and state.get(name) == "stalled":
        to.unstall(name, now_s)
        state[name] = "suspended"


@settings(max_examples=300)
@given(events, st.integers(1, 6), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([None, 400]))
def test_nobody_is_lost_and_bounds_are_kept(
    happened: list[tuple[str, str, list[SloClass], float, bool]], places: int, floor: float, kv_tokens: int | None
) -> None:
    to = admission(max_active=places, best_effort_floor=floor, max_waiting=5)
    verifier = VerifierNow(LinearCostModel(0.02, 0.0, 0.0, 0.01), RoundShape(rounds=1), kv_tokens)
    state, last, now_s = dict[str, str](), dict[str, float](), 0.0
    for what, name, classes, seconds, resumed in happened:
        now_s += seconds
        if what == "ask" and name not in state:
            to.ask(asked(name, *classes, at_s=now_s, resumed=resumed))
            state[name], last[name] = "waiting", now_s
        elif what == "leaves" and state.get(name) == "waiting":
            to.withdraw(name)
            del state[name]
        elif what == "ends" and state.get(name) in ("active", "suspended", "stalled"):
            to.end(name, now_s, 20 if resumed else None, kept=resumed)
            del state[name]
        else:
            read_or_not(to, state, what, name, now_s)
        told = to.decide(now_s, verifier)
        for refusal in told.refused:
            assert state.pop(refusal.name) == "waiting"
            assert refusal.retry_after_s >= 1
        for letting in told.admitted:
            assert state[letting.name] == "waiting"
            state[letting.name] = "active"
        for one in told.suspended:
            assert state[one] == "active"
            state[one] = "suspended"
        for one in told.continued:
            assert state[one] == "suspended"
            state[one] = "active"
        counted = Counter(state.values())
        assert counted["active"] == to.active <= places
        assert counted["waiting"] == to.waiting <= 5
        assert (to.report().suspended, to.report().stalled) == (counted["suspended"], counted["stalled"])
        assert to.due_at_s > now_s, "nobody waits for longer than it may"
        assert to.active or not set(state.values()) - {"stalled"}, "an idle verifier takes on who waits"
        assert not to.report().classes or set(to.report().classes) <= {slo.name for slo in CLASSES}


@given(st.permutations([("a", TWO, 0.0), ("b", EIGHT, 0.1), ("c", BEST_EFFORT, 0.2), ("d", FOUR, 0.3)]))
def test_the_order_of_asking_is_that_of_arrival(order: list[tuple[str, SloClass, float]]) -> None:
    to = admission(max_active=2, best_effort_floor=0.0)
    decisions = ask(to, *(asked(name, slo, at_s=at_s) for name, slo, at_s in order), now_s=1.0)
    assert begun(decisions) == ["a", "b"]


def test_a_report_of_nobody_is_empty() -> None:
    to = Admission(RULES)
    assert to.report().classes == {}
    assert (to.active, to.waiting, to.due_at_s) == (0, 0, float("inf"))


def test_other_rules_refuse_nobody_who_waits_and_shorten_no_wait() -> None:
    to = admission(max_active=1, max_waiting=3)
    ask(to, *(asked(name) for name in ("made", "a", "b", "c")))
    to.rules = replace(to.rules, max_waiting=1, best_effort_max_wait_s=1.0)
    assert refused(ask(to, asked("new", at_s=2.0), now_s=2.0)) == ["new"]
    assert to.waiting == 3
    assert to.due_at_s == RULES.best_effort_max_wait_s
    to.end("made", 3.0)
    assert begun(to.decide(3.0, VERIFIER)) == ["a"]
    assert refused(ask(to, asked("newer", at_s=3.0), now_s=3.0)) == ["newer"], "two wait, where one may"
    assert refused(to.decide(RULES.best_effort_max_wait_s, VERIFIER)) == ["b", "c"]


def test_fewer_places_end_nothing_and_more_are_used_at_once() -> None:
    to = admission(max_active=4)
    assert begun(ask(to, *(asked(name) for name in "abc"))) == ["a", "b", "c"]
    to.rules = replace(to.rules, max_active=1)
    decisions = ask(to, asked("d"), asked("e", TWO), asked("f", TWO))
    assert (begun(decisions), decisions.suspended, to.active) == (["e"], (), 4)
    to.rules = replace(to.rules, max_active=6)
    assert sorted(begun(to.decide(1.0, VERIFIER))) == ["d", "f"]

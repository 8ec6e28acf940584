"""Places between accounts: whoever asks for much leaves others their turn, and one alone may have all."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.admission.account_places import PATIENCE_S
from outrider.admission.admission import Admission
from outrider.contracts.accounts import Account
from outrider.contracts.slo import BEST_EFFORT, SloClass
from tests.unit.admission.asking import EIGHT, TWO, VERIFIER, admission, ask, asked, begun, refused

A, B, C = Account("a"), Account("b"), Account("c")


def of(account: Account, number: int, *classes: SloClass, at_s: float = 0.0) -> list[object]:
    return [asked(f"{account.name}{i}", *classes, at_s=at_s + i * 1e-6, account=account) for i in range(number)]


def flooded(**rules: object) -> Admission:
    """A has all four places, and twenty wait."""
    to = admission(max_active=4, max_waiting=20, best_effort_floor=0.25, **rules)
    assert begun(ask(to, *of(A, 24))) == ["a0", "a1", "a2", "a3"]  # type: ignore[arg-type]
    return to


def test_one_account_alone_has_all_places_in_order_of_arrival() -> None:
    to = flooded()
    to.end("a2", 1.0, 10)
    assert begun(to.decide(1.0, VERIFIER)) == ["a4"]


def test_another_account_has_the_first_place_that_becomes_free() -> None:
    to = flooded()
    assert begun(ask(to, asked("b", at_s=1.0, account=B), now_s=1.0)) == []
    to.end("a0", 1.1, 10)
    assert begun(to.decide(1.1, VERIFIER)) == ["b"]


def test_where_none_becomes_free_the_youngest_of_the_crowd_makes_room() -> None:
    to = flooded()
    ask(to, *of(B, 3, at_s=1.0), now_s=1.0)  # type: ignore[arg-type]
    assert to.due_at_s == 1.0 + PATIENCE_S
    decisions = to.decide(1.0 + PATIENCE_S, VERIFIER)
    assert (begun(decisions), decisions.suspended) == (["b0"], ("a3",))
    assert to.decide(9.0, VERIFIER).suspended == (), "no more than its first place is taken from anybody"
    to.end("a1", 10.0, 10)
    assert begun(to.decide(10.0, VERIFIER)) == ["b1"]
    to.end("a0", 11.0, 10)
    decisions = to.decide(11.0, VERIFIER)
    assert (begun(decisions), decisions.continued) == ([], ("a3",)), "who was suspended is the first of its account"


def test_who_holds_far_fewer_is_given_more_until_a_fourth_of_the_most() -> None:
    """A's responses never end: B, whose first is under way, need not wait for one to."""
    to = admission(max_active=12, max_waiting=100, best_effort_floor=0.1)
    ask(to, *of(B, 1), *of(A, 40))  # type: ignore[arg-type]
    ask(to, *(asked(f"b{i}", at_s=1.0, account=B) for i in range(1, 9)), now_s=1.0)
    assert to.due_at_s == 1.0 + PATIENCE_S
    turns = [to.decide(1.0 + turn * PATIENCE_S, VERIFIER) for turn in range(1, 9)]
    assert [begun(turn) for turn in turns] == [["b1"], ["b2"], [], [], [], [], [], []]
    assert [turn.suspended for turn in turns[:2]] == [("a10",), ("a9",)], "of eleven and one: nine and three"


def test_who_has_waited_is_not_held_up_by_who_was_served_less_and_has_not() -> None:
    to = admission(max_active=4, max_waiting=20, best_effort_floor=0.25)
    ask(to, asked("b0", account=B), *of(A, 24))  # type: ignore[arg-type]
    ask(to, asked("d", at_s=0.5, account=Account("d")), now_s=0.5)
    to.end("b0", 0.9, 10)
    assert begun(to.decide(0.9, VERIFIER)) == ["d"]
    ask(to, asked("b1", at_s=1.0, account=B), now_s=1.0)
    ask(to, asked("c", at_s=1.4, account=C), now_s=1.4)
    assert begun(to.decide(1.0 + PATIENCE_S, VERIFIER)) == ["b1"]
    assert begun(to.decide(1.4 + PATIENCE_S, VERIFIER)) == ["c"]


def test_who_holds_much_kv_holds_many_places() -> None:
    """A's second long prompt lacks KV, and B has more responses; it is B's turn all the same."""
    verifier = replace(VERIFIER, kv_tokens=10_000, block_tokens=16)
    to = admission(max_active=16, max_waiting=100, best_effort_floor=0.1)
    long = [replace(asked(f"a{i}", account=A), prompt_tokens=6000) for i in range(2)]
    assert sorted(begun(ask(to, *of(B, 2), *long, verifier=verifier))) == ["a0", "b0", "b1"]  # type: ignore[arg-type]
    assert begun(ask(to, asked("b2", at_s=1.0, account=B), now_s=1.0, verifier=verifier)) == ["b2"]


def test_nobody_is_suspended_who_has_a_promise_or_is_the_only_one_of_its_account() -> None:
    promised = admission(max_active=4, best_effort_floor=0.0)
    ask(promised, *of(A, 4, TWO))  # type: ignore[arg-type]
    assert ask(promised, asked("b", account=B), now_s=9.0).suspended == ()
    alone = admission(max_active=2, best_effort_floor=0.0)
    ask(alone, asked("a", account=A), asked("b", account=B))
    assert ask(alone, asked("c", account=C), now_s=9.0).suspended == ()


def test_places_become_equal_as_responses_end() -> None:
    to = admission(max_active=6, max_waiting=100)
    active = begun(ask(to, *of(A, 60)))  # type: ignore[arg-type]
    ask(to, *of(B, 20, at_s=1.0))  # type: ignore[arg-type]
    for turn in range(20):
        name = active.pop(0)
        to.end(name, 1.1 + turn / 100, 10)
        active += begun(to.decide(1.1 + turn / 100, VERIFIER))
        assert len(active) == 6
    assert Counter(name[0] for name in active) == {"a": 3, "b": 3}


def test_with_one_place_accounts_take_turns_by_what_they_have_held() -> None:
    """A's responses take twice as long: of three turns B has two."""
    to, now_s, turns = admission(max_active=1, max_waiting=100), 0.0, ""
    (name,) = begun(ask(to, *of(A, 40), *of(B, 40)))  # type: ignore[arg-type]
    for _ in range(30):
        turns += name[0]
        now_s += 2.0 if name[0] == "a" else 1.0
        to.end(name, now_s, 10)
        (name,) = begun(to.decide(now_s, VERIFIER))
    assert turns.count("b") == pytest.approx(20, abs=1)


def test_a_full_queue_refuses_the_newest_of_whoever_fills_it() -> None:
    to = flooded()
    decisions = ask(to, asked("b", at_s=1.0, account=B), now_s=1.0)
    assert refused(decisions) == ["a23"], "not the one that came last"
    assert decisions.refused[0].message.startswith("best_effort needs a place in the queue, found 20 of 20 taken")
    assert refused(ask(to, asked("more", at_s=2.0, account=A), now_s=2.0)) == ["more"]


def test_a_queue_full_of_promises_leaves_room_for_another_accounts_best_effort() -> None:
    to = admission(max_active=1, max_waiting=5)
    ask(to, *of(A, 6, EIGHT))  # type: ignore[arg-type]
    assert refused(ask(to, asked("b", at_s=1.0, account=B), now_s=1.0)) == ["a5"]


def test_who_had_many_stand_still_takes_neither_places_nor_the_queue_from_others() -> None:
    """Six that nobody read for a while come back, beside one that another account asks for."""
    to = admission(max_active=2, max_waiting=4, best_effort_floor=0.0)
    for wave in range(3):
        names = [f"a{2 * wave + i}" for i in range(2)]
        assert begun(ask(to, *(asked(name, account=A) for name in names))) == names
        for name in names:
            to.stall(name, 0.0)
    for i in range(6):
        to.unstall(f"a{i}", 1.0)
    assert len(to.decide(1.0, VERIFIER).continued) == 2
    assert refused(ask(to, asked("b", at_s=2.0, account=B), now_s=2.0)) == []
    assert begun(to.decide(2.0 + PATIENCE_S, VERIFIER)) == ["b"]
    assert refused(ask(to, asked("a6", at_s=3.0, account=A), now_s=3.0)) == ["a6"], "it waits with four of its own"


def test_promises_that_stood_still_take_turns_with_those_of_others() -> None:
    to = admission(max_active=2, max_waiting=20)
    for wave in range(3):
        names = [f"a{2 * wave + i}" for i in range(2)]
        assert begun(ask(to, *(asked(name, TWO, account=A) for name in names))) == names
        for name in names:
            to.stall(name, 0.0)
    for i in range(6):
        to.unstall(f"a{i}", 1.0)
    assert to.decide(1.0, VERIFIER).continued == ("a0", "a1")
    ask(to, asked("b", TWO, at_s=2.0, account=B), now_s=2.0)
    to.end("a0", 3.0, 10)
    decisions = to.decide(3.0, VERIFIER)
    assert (begun(decisions), decisions.continued) == (["b"], ())


def test_promises_go_before_best_effort_whoever_asks_and_take_turns_among_themselves() -> None:
    to = admission(max_active=2, best_effort_floor=0.0, max_waiting=50)
    ask(to, *of(A, 6, TWO))  # type: ignore[arg-type]
    ask(to, asked("b", at_s=1.0, account=B), asked("c", TWO, at_s=2.0, account=C), now_s=2.0)
    to.end("a0", 3.0, 10)
    assert begun(to.decide(3.0, VERIFIER)) == ["c"]
    to.end("c", 4.0, 10)
    assert begun(to.decide(4.0, VERIFIER)) == ["a2"], (
        "whose promise goes before the best effort of an account with none"
    )


def test_users_of_one_account_suspend_nobody() -> None:
    to = admission(max_active=2)
    ask(to, *(asked(f"r{i}", account=Account("a", f"user {i}")) for i in range(5)))
    assert to.decide(50.0, VERIFIER).suspended == ()


accounts = st.builds(Account, st.sampled_from("abcd"), st.sampled_from(["", "x", "y"]))
events = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "leaves", "ends", "wait"]),
        accounts,
        st.integers(0, 15),
        st.sampled_from([BEST_EFFORT, BEST_EFFORT, TWO]),
        st.sampled_from([0.0, 0.1, 0.6]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(events, st.integers(1, 12))
def test_nothing_is_lost_no_place_stays_free_and_nobody_waits_beside_a_crowd(
    happened: list[tuple[str, Account, int, SloClass, float]], places: int
) -> None:
    to = admission(max_active=places, max_waiting=7 + places, best_effort_floor=0.2, max_load=100.0)
    state, owner, since = dict[str, str](), dict[str, Account](), dict[str, float]()
    slo_of, now_s = dict[str, SloClass](), 0.0
    for what, account, number, slo, seconds in happened:
        now_s += seconds
        name = f"{account.name}{account.user}{number}"
        if what == "ask" and name not in state:
            to.ask(asked(name, slo, at_s=now_s, account=account))
            state[name], owner[name], since[name], slo_of[name] = "waiting", account, now_s, slo
        elif what == "leaves" and state.get(name) == "waiting":
            to.withdraw(name)
            del state[name]
        elif what == "ends" and state.get(name) in ("active", "suspended"):
            to.end(name, now_s, 20)
            del state[name]
        told = to.decide(now_s, VERIFIER)
        for one in told.refused:
            assert state.pop(one.name) == "waiting"
        for names, before, after in (
            ([one.name for one in told.admitted], "waiting", "active"),
            (told.suspended, "active", "suspended"),
            (told.continued, "suspended", "active"),
        ):
            for each in names:
                assert state[each] == before
                state[each], since[each] = after, now_s if before == "waiting" else since[each]
        active = [each for each, how in state.items() if how == "active"]
        held = Counter(owner[each].name for each in active)
        idle = [each for each, how in state.items() if how in ("waiting", "suspended")]
        assert to.active == len(active) <= places
        assert to.due_at_s > now_s
        wants = [each for each in idle if slo_of[each] is BEST_EFFORT]
        assert len(active) == places or not wants, "work conserving"
        crowd = max((held[owner[each].name] for each in active if slo_of[each] is BEST_EFFORT), default=0)
        for name in {owner[each].name for each in wants}:
            latest_s = max(since[each] for each in (*wants, *active) if owner[each].name == name)
            waits = now_s - latest_s >= PATIENCE_S
            assert not waits or crowd <= max(1, 4 * held[name]), "nobody holds far more beside who waits"
    for each, how in list(state.items()):
        (to.withdraw(each) if how == "waiting" else to.end(each, now_s))
    assert to._state.accounts.service.remembered == 0  # noqa: SLF001 (it is to be forgotten)


def test_priority_orders_an_accounts_own_responses_and_takes_nothing_of_others() -> None:
    to = admission(max_active=1, max_waiting=20, best_effort_floor=0.0)
    own = [replace(asked(f"a{i}", at_s=i * 1e-6, account=A), priority=-i) for i in range(3)]
    others = [replace(asked(f"b{i}", at_s=i * 1e-6, account=B), priority=9) for i in range(3)]
    assert begun(ask(to, asked("c", account=C))) == ["c"]
    ask(to, *own, *others, now_s=0.5)
    order, now_s = list[str](), 1.0
    for _ in range(6):
        to.end(order[-1] if order else "c", now_s, 10)
        order += begun(to.decide(now_s, VERIFIER))
        now_s += 1.0
    assert [name for name in order if name[0] == "a"] == ["a2", "a1", "a0"]
    assert [name for name in order if name[0] == "b"] == ["b0", "b1", "b2"]
    assert [name[0] for name in order[:4]] in (list("abab"), list("baba")), "accounts take turns all the same"

"""Who goes next between accounts: nobody is lost or starved, and what is remembered has a bound."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.accounts import Account
from outrider.scheduling.fair_order import AccountService, ServiceCounters, fair_order

Asking = tuple[Account, int]

accounts = st.builds(Account, st.sampled_from("abc"), st.sampled_from(["", "x", "y"]))
requests = st.lists(accounts, max_size=40).map(lambda all_of_them: list(zip(all_of_them, range(99), strict=False)))


def ordered(items: Sequence[Asking], had: dict[str, float] | None = None) -> list[Asking]:
    had = had or {}
    return list(
        fair_order(
            items,
            lambda item: item[0],
            lambda account: (had.get(account.name, 0.0), 0.0),
            lambda _: (0.0, 0.0),
            lambda _: 1.0,
        )
    )


@given(requests, st.dictionaries(st.sampled_from("abc"), st.floats(0.0, 9.0)))
def test_nobody_is_lost_and_order_is_kept_inside_an_account_and_user(
    items: list[Asking], had: dict[str, float]
) -> None:
    found = ordered(items, had)
    assert sorted(found) == sorted(items)
    for account in {account for account, _ in items}:
        assert [n for own, n in found if own == account] == [n for own, n in items if own == account]


@given(requests)
def test_of_one_account_and_user_the_order_is_that_of_arrival(items: list[Asking]) -> None:
    alike = [(Account("a", "x"), n) for _, n in items]
    assert ordered(alike) == alike


@given(requests)
def test_an_account_delays_another_by_its_turns_only(items: list[Asking]) -> None:
    """However many are before it: the k-th of an account waits for at most k of each other account."""
    found = ordered(items)
    for name in {account.name for account, _ in items}:
        before = Counter[str]()
        own = 0
        for account, _ in found:
            own += account.name == name
            if account.name != name and own < sum(each.name == name for each, _ in items):
                before[account.name] += 1
                assert before[account.name] <= own + 1


@given(requests)
def test_a_new_user_for_each_request_gains_nothing(items: list[Asking]) -> None:
    """Whoever names others gets its turns as often as if it named nobody."""
    plain = [(Account(account.name), n) for account, n in items]
    many = [(Account(account.name, str(n) if account.name == "a" else ""), n) for account, n in items]
    assert [account.name for account, _ in ordered(many)] == [account.name for account, _ in ordered(plain)]


def test_users_divide_the_share_of_their_account() -> None:
    items = [(Account("a", "x"), n) for n in range(4)] + [(Account("a", "y"), 4), (Account("b"), 5)]
    assert [n for _, n in ordered(items)] == [0, 5, 4, 1, 2, 3]


def test_who_was_served_least_goes_first() -> None:
    items = [(Account("a"), 0), (Account("a"), 1), (Account("b"), 2), (Account("b"), 3)]
    assert [n for _, n in ordered(items, {"a": 1.5})] == [2, 3, 0, 1]


def test_nobody_saves_up_while_idle_or_gains_by_a_pause() -> None:
    counters = ServiceCounters()
    counters.join("busy")
    counters.charge("busy", 100.0)
    counters.join("new")
    assert counters.served("new") == 100.0, "not 100 turns in a row"
    counters.charge("new", 50.0)
    counters.remove("new")
    counters.join("new")
    assert counters.served("new") == 150.0
    counters.charge("busy", 90.0)
    counters.remove("new")
    counters.join("new")
    assert counters.served("new") == 190.0, "others have caught up"


def test_nothing_is_remembered_once_nobody_is_active() -> None:
    service = AccountService()
    for name in "ab":
        service.join(Account(name, "x"))
        service.charge(Account(name, "x"), 3.0)
    assert service.several
    for name in "ab":
        service.remove(Account(name, "x"))
    assert (service.several, service.remembered) == (False, 0)


def test_what_is_remembered_of_the_idle_has_a_bound() -> None:
    """Somebody is always active, and comes by a new address for each request."""
    service, busy = AccountService(), Account("busy", "busy")
    service.join(busy)
    for number in range(20_000):
        for account in (Account(f"address {number}"), Account("busy", f"user {number}")):
            service.join(account)
            service.charge(account, 1.0)
            service.remove(account)
    assert service.remembered < 3_000
    service.charge(busy, 2.0)
    for number in range(2_000):
        account = Account(f"late {number}")
        service.join(account)
        service.charge(account, 1.0)
        service.remove(account)
    assert service.remembered < 3_000

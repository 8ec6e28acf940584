"""Which drafter serves which generation."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.fleet.lease_table import LeaseTable
from actors.messages import DrafterId, DrafterState, DrafterStatus

A0, A1, B0 = DrafterId("a", 0), DrafterId("a", 1), DrafterId("b", 0)
CAPACITY = {A0: 2, A1: 2, B0: 4}
TTL_S = 10.0


def table(*ready: DrafterId) -> LeaseTable:
    made = LeaseTable()
    for drafter, capacity in CAPACITY.items():
        made.add(drafter, capacity)
    for drafter in ready:
        made.mark_ready(drafter)
    return made


def leased(leases: LeaseTable, names: str) -> Mapping[str, DrafterId]:
    """Who of these is leased to whom."""
    return {name: drafter for drafter in CAPACITY for name in names if not leases.unleased(drafter, [name])}


def statuses(leases: LeaseTable) -> tuple[DrafterStatus, ...]:
    return tuple(DrafterStatus(*row) for row in leases.rows({}))


def test_the_least_loaded_share_comes_first() -> None:
    leases = table(A0, A1, B0)
    assert [leases.lease(f"g{i}") for i in range(8)] == [A0, A1, B0, B0, A0, A1, B0, B0]
    assert leases.lease("g8") is None
    leases.release("g1")
    assert leases.lease("g8") == A1


def test_drafters_that_are_not_ready_get_no_leases() -> None:
    leases = table()
    assert leases.lease("g") is None
    leases.mark_ready(B0)
    assert leases.lease("g") == B0


def test_a_lease_is_kept_until_its_drafter_is_excluded() -> None:
    leases = table(A0, A1)
    assert leases.lease("g") == leases.lease("g") == A0
    assert leases.lease("g", exclude=[A0]) == A1
    assert leases.loads() == {A0: 0, A1: 1}


def test_the_states_of_a_drafter_are_told_with_their_reason() -> None:
    leases = table(A0, A1, B0)
    for name in "vwxyz":
        leases.lease(name)
    leases.mark_suspect(A0)
    assert leases.mark_lost(A1) == {"w"}
    assert leases.mark_refused(B0, "needs a token map") == {"x", "y"}
    assert statuses(leases) == (
        DrafterStatus("drafter-a-0", "a", DrafterState.SUSPECT, None, 2, 2),
        DrafterStatus("drafter-a-1", "a", DrafterState.STARTING, None, 0, 2),
        DrafterStatus("drafter-b-0", "b", DrafterState.REFUSED, "needs a token map", 0, 4),
    )
    assert leases.loads() == {}
    assert leases.lease("new") is None
    leases.mark_ready(B0)
    assert statuses(leases)[2] == DrafterStatus("drafter-b-0", "b", DrafterState.READY, None, 0, 4)


def test_a_drafter_that_is_removed_ends_its_leases_and_one_added_twice_keeps_them() -> None:
    leases = table(A0)
    leases.lease("g")
    leases.add(A0, 7)
    assert leases.loads() == {A0: 1}
    assert leases.remove(A0) == {"g"}
    assert {status.name for status in statuses(leases)} == {A1.actor_name, B0.actor_name}
    leases.release("g")
    assert leases.lease("g") is None


def test_only_drafters_of_the_groups_that_are_named_are_given() -> None:
    leases = table(A0, B0)
    assert leases.lease("g", groups={"b"}) == B0
    assert leases.lease("g") == B0, "a lease is kept"
    assert leases.lease("g", groups={"a"}) == A0, "unless it is of another group"
    assert leases.lease("h", groups=()) is None


def test_an_answer_under_way_survives_the_owners_word() -> None:
    """The owner said what it holds before it learned of its lease."""
    leases = table(A0)
    leases.lease("g", owner="one")
    leases.renew("one", {"g": None}, now_s=0.0)
    assert leased(leases, "g") == {"g": A0}
    leases.renew("one", {}, now_s=1.0)
    assert leased(leases, "g") == {}
    leases.renew("one", {"g": None}, now_s=2.0)
    assert leased(leases, "g") == {}, "nobody knows yet where"


def test_what_the_owner_says_is_the_truth_for_its_own_leases_alone() -> None:
    leases = table(A0, A1, B0)
    leases.lease("g", owner="one")
    leases.lease("h", owner="two")
    leases.renew("one", {"g": B0, "h": B0}, now_s=0.0)
    assert leased(leases, "gh") == {"g": B0, "h": A1}
    leases.renew("one", {"x": DrafterId("gone", 0)}, now_s=1.0)
    assert leased(leases, "ghx") == {"h": A1}


def test_silence_is_counted_from_the_last_word_or_the_first_sweep() -> None:
    leases = table(A0)
    leases.renew("one", {"g": A0}, now_s=100.0)
    leases.lease("h", owner="never heard")
    assert leases.expire(100.0 + TTL_S, TTL_S) == {}
    assert leases.expire(100.5 + TTL_S, TTL_S) == {"g": A0}
    assert leases.expire(100.0 + 2 * TTL_S, TTL_S) == {}
    assert leases.expire(100.5 + 2 * TTL_S, TTL_S) == {"h": A0}
    assert leases.loads() == {A0: 0}
    leases.lease("i", owner="one")
    assert leases.expire(200.0, TTL_S) == {}, "one that comes back is heard of anew"


@pytest.mark.parametrize("state", ["suspect", "lost", "refused"])
def test_a_word_about_a_drafter_that_is_not_ready_lets_it_be_leased_no_further(state: str) -> None:
    leases = table(A0)
    if state == "suspect":
        leases.mark_suspect(A0)
    elif state == "lost":
        leases.mark_lost(A0)
    else:
        leases.mark_refused(A0, "why")
    leases.renew("one", {"g": A0}, now_s=0.0)
    assert leases.lease("h") is None
    assert leases.lease("g") == A0, "until its owner gives it up"


def test_what_an_owner_has_said_holds_though_it_does_not_say_it_again() -> None:
    leases = table(A0, A1)
    leases.renew("one", {"g": A0, "h": A1}, 0.0)
    leases.mark_lost(A0)
    assert leased(leases, "gh") == {"h": A1}
    leases.renew("one", {"g": A0, "h": A1}, 1.0, changed=())
    assert leased(leases, "gh") == {"g": A0, "h": A1}, "it goes on there"
    leases.remove(A0)
    leases.renew("one", {"g": A0, "h": A1}, 2.0, changed=())
    leases.add(A0, 2)
    leases.renew("one", {"g": A0, "h": A1}, 3.0, changed=())
    assert leased(leases, "g") == {"g": A0}, "its drafter is there again"
    leases.renew("two", {"h": A1}, 3.0)
    leases.renew("one", {"g": A0}, 4.0, changed=["h"])
    leases.renew("two", {"h": A1}, 5.0, changed=())
    assert leased(leases, "gh") == {"g": A0, "h": A1}, "who has taken a generation over has its lease as well"
    leases.expire(TTL_S + 4.5, TTL_S)
    leases.renew("one", {"g": A0}, TTL_S + 5.0, changed=())
    assert leased(leases, "g") == {"g": A0}, "whatever it said before it was silent"


OWNERS = ("one", "two", "three")
NAMES = {owner: [f"{owner}.{i}" for i in range(5)] for owner in OWNERS}  # ids are unique to a coordinator
ALL_NAMES = [name for names in NAMES.values() for name in names]
OWNER_OF = {name: owner for owner, names in NAMES.items() for name in names}
DRAFTERS = st.sampled_from(sorted(CAPACITY))


class LeaseMachine(RuleBasedStateMachine):
    """Any order of leases, releases, losses, recoveries, heartbeats and silences, with several coordinators."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table()
        self.ready: set[DrafterId] = set()
        self.held: dict[str, DrafterId] = {}  # what the table should say
        self.asked: set[str] = set()  # leased, but the owner has not learned of it
        self.heard_at_s: dict[str, float] = {}
        self.now_s = 0.0

    def holds(self, owner: str) -> dict[str, DrafterId | None]:
        """What an owner knows of its leases."""
        mine = {name: drafter for name, drafter in self.held.items() if OWNER_OF[name] == owner}
        return {name: None if name in self.asked else drafter for name, drafter in mine.items()}

    def drop(self, names: set[str]) -> None:
        self.asked -= names
        for name in names:
            self.held.pop(name, None)

    @rule(drafter=DRAFTERS)
    def come_up(self, drafter: DrafterId) -> None:
        self.table.mark_ready(drafter)
        self.ready.add(drafter)

    @rule(drafter=DRAFTERS)
    def suspect(self, drafter: DrafterId) -> None:
        self.table.mark_suspect(drafter)
        self.ready.discard(drafter)

    @rule(drafter=DRAFTERS, refused=st.booleans())
    def lose(self, drafter: DrafterId, *, refused: bool) -> None:
        orphans = {name for name, holder in self.held.items() if holder == drafter}
        ended = self.table.mark_refused(drafter, "why") if refused else self.table.mark_lost(drafter)
        assert ended == orphans
        self.ready.discard(drafter)
        self.drop(orphans)

    @rule(name=st.sampled_from(ALL_NAMES), exclude=st.sets(DRAFTERS), answered=st.booleans())
    def lease(self, name: str, exclude: set[DrafterId], *, answered: bool) -> None:
        held_before = self.held.get(name)
        free = [drafter for drafter in self.ready - exclude if self.others_at(drafter, name) < CAPACITY[drafter]]
        expected = min(free, key=lambda one: (self.others_at(one, name) / CAPACITY[one], one), default=None)
        full = {drafter for drafter, capacity in CAPACITY.items() if self.load(drafter) >= capacity}
        given = self.table.lease(name, exclude, OWNER_OF[name])
        if held_before is not None and held_before not in exclude:
            assert given == held_before
        elif given is None:
            assert self.ready - exclude <= full
            self.drop({name})
        else:
            assert given in self.ready - exclude - full, "capacity is respected"
            assert given == expected, "the least share, then the name"
        if given is not None:
            self.held[name] = given
            self.asked.discard(name)
            if not answered:
                self.asked.add(name)

    @rule(name=st.sampled_from(ALL_NAMES))
    def release(self, name: str) -> None:
        self.table.release(name)
        self.drop({name})

    @rule(owner=st.sampled_from(OWNERS), forgets=st.sets(st.sampled_from(ALL_NAMES)))
    def renew(self, owner: str, forgets: set[str]) -> None:
        """It keeps exactly what it names."""
        said = {name: drafter for name, drafter in self.holds(owner).items() if name not in forgets}
        self.table.renew(owner, said, self.now_s)
        self.drop({name for name in NAMES[owner] if name not in said})
        self.heard_at_s[owner] = self.now_s

    @rule(owner=st.sampled_from(OWNERS), moves=st.dictionaries(st.sampled_from(ALL_NAMES), DRAFTERS))
    def renew_with_news(self, owner: str, moves: dict[str, DrafterId]) -> None:
        """It says what this table does not know, as after a restart of the fleet."""
        mine = {name: drafter for name, drafter in moves.items() if OWNER_OF[name] == owner}
        self.table.renew(owner, self.holds(owner) | mine, self.now_s)
        self.held |= mine
        self.asked -= set(mine)
        self.heard_at_s[owner] = self.now_s

    @rule(seconds=st.floats(0.0, 2 * TTL_S))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def expire(self) -> None:
        """An owner that is silent loses everything, and nobody else anything."""
        for name in self.held:
            self.heard_at_s.setdefault(OWNER_OF[name], self.now_s)
        silent = {owner for owner, at_s in self.heard_at_s.items() if self.now_s - at_s > TTL_S}
        lost = {name: drafter for name, drafter in self.held.items() if OWNER_OF[name] in silent}
        assert self.table.expire(self.now_s, TTL_S) == lost
        self.drop(set(lost))
        for owner in silent:
            del self.heard_at_s[owner]

    @precondition(lambda self: not self.asked)
    @rule()
    def restart(self) -> None:
        """A fresh table is as the old one once every owner has said what it holds."""
        before = statuses(self.table)
        self.table = table(*self.ready)
        for status, drafter in zip(before, sorted(CAPACITY), strict=True):
            if status.state is DrafterState.SUSPECT:
                self.table.mark_suspect(drafter)
            elif status.state is DrafterState.REFUSED:
                self.table.mark_refused(drafter, status.reason or "")
        self.heard_at_s = {}
        for owner in OWNERS:
            self.renew(owner, set())
        assert statuses(self.table) == before

    def others_at(self, drafter: DrafterId, name: str) -> int:
        return sum(holder == drafter for other, holder in self.held.items() if other != name)

    def load(self, drafter: DrafterId) -> int:
        return list(self.held.values()).count(drafter)

    @invariant()
    def the_table_says_what_is_held(self) -> None:
        for drafter in CAPACITY:
            mine = {name for name, holder in self.held.items() if holder == drafter}
            assert self.table.unleased(drafter, ALL_NAMES) == set(ALL_NAMES) - mine
        loads = {drafter: self.load(drafter) for drafter in self.ready}
        assert self.table.loads() == loads
        assert self.table.places == sum(CAPACITY[drafter] for drafter in loads)
        assert self.table.room == sum(max(0, CAPACITY[drafter] - load) for drafter, load in loads.items())
        assert {group for group in "ab" if self.table.has_ready(group)} == {drafter.group for drafter in loads}
        assert {drafter for drafter in CAPACITY if self.table.is_ready(drafter)} == set(loads)


LeaseMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestLeases = LeaseMachine.TestCase

TALKERS = st.sampled_from(OWNERS[:2])
WORDS = st.dictionaries(st.sampled_from("xy"), st.none() | DRAFTERS, max_size=2)


class WordMachine(RuleBasedStateMachine):
    """Whatever owners say, of names that others have said as well: who tells what has changed is understood as well."""

    def __init__(self) -> None:
        super().__init__()
        self.told_all, self.told_changes = table(), table()
        self.said = defaultdict[str, dict[str, DrafterId | None]](dict)
        self.now_s = 0.0

    @property
    def both(self) -> tuple[LeaseTable, LeaseTable]:
        return self.told_all, self.told_changes

    @rule(name=st.sampled_from("xy"), owner=TALKERS, exclude=st.sets(DRAFTERS))
    def lease(self, name: str, owner: str, exclude: set[DrafterId]) -> None:
        first, second = (one.lease(name, exclude, owner) for one in self.both)
        assert first == second

    @rule(name=st.sampled_from("xy"))
    def release(self, name: str) -> None:
        for one in self.both:
            one.release(name)

    @rule(drafter=DRAFTERS, becomes=st.sampled_from(["ready", "suspect", "lost", "removed"]))
    def drafters_change(self, drafter: DrafterId, becomes: str) -> None:
        for one in self.both:
            one.add(drafter, CAPACITY[drafter])
            if becomes == "ready":
                one.mark_ready(drafter)
            elif becomes == "suspect":
                one.mark_suspect(drafter)
            elif becomes == "lost":
                one.mark_lost(drafter)
            else:
                one.remove(drafter)

    @rule(owner=TALKERS, says=WORDS, forgets=st.sets(st.sampled_from("xy"), max_size=1))
    def renew(self, owner: str, says: dict[str, DrafterId | None], forgets: set[str]) -> None:
        before = self.said[owner]
        now = {name: drafter for name, drafter in (before | says).items() if name not in forgets}
        self.told_all.renew(owner, now, self.now_s)
        self.told_changes.renew(owner, now, self.now_s, {*says, *(forgets & before.keys())})
        self.said[owner] = now

    @rule(owner=TALKERS)
    def renew_as_before(self, owner: str) -> None:
        self.told_all.renew(owner, self.said[owner], self.now_s)
        self.told_changes.renew(owner, self.said[owner], self.now_s, ())

    @rule(seconds=st.sampled_from([0.0, 1.0, 2 * TTL_S]))
    def expire(self, seconds: float) -> None:
        self.now_s += seconds
        first, second = (one.expire(self.now_s, TTL_S) for one in self.both)
        assert first == second

    @invariant()
    def they_agree(self) -> None:
        assert statuses(self.told_all) == statuses(self.told_changes)
        first, second = (self.leases(one) for one in self.both)
        assert (first, self.told_all.room) == (second, self.told_changes.room)
        for one in self.both:
            counted = Counter((status.group, status.state) for status in statuses(one))
            assert +Counter(one.sums().drafters) == counted
            for group in "ab":
                leases = sum(status.generations for status in statuses(one) if status.group == group)
                assert one.sums().leases.get(group, 0) == leases

    def leases(self, one: LeaseTable) -> dict[DrafterId, frozenset[str]]:
        """Those that each drafter does not have."""
        known = {status.name for status in statuses(one)}
        return {drafter: one.unleased(drafter, "xy") for drafter in CAPACITY if drafter.actor_name in known}


WordMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestWords = WordMachine.TestCase

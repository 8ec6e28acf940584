"""Who is in a verifier's steps: whoever the policy prefers, also before those who are in them already."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, Promised, StopReason
from outrider.scheduling.promised_load import PromisedNeed, load_of
from outrider.scheduling.registry import SCHEDULING
from outrider.scheduling.steps import StepPlan, StepPlanner, StepRules
from tests.unit.scheduling.queues import COSTS, NOW_S, ROOMY, block

ALL_POLICIES = pytest.mark.parametrize("policy", SCHEDULING)
FOR_TWO = replace(ROOMY, max_blocks=2)


@dataclass(eq=False)
class Asking:
    """Needs what the test says."""

    needs: PendingVerification
    goes_on: bool = True
    prefill_tokens: int = 0

    def pending(self) -> PendingVerification:
        return self.needs


def planner(policy: str, limits: BatchLimits, blocks: Iterable[PendingVerification]) -> StepPlanner:
    made = StepPlanner(SCHEDULING[policy].policy, limits)
    for one in blocks:
        made.add(one.generation, Asking(one))
    return made


@ALL_POLICIES
def test_who_finds_room_is_in_and_nothing_is_planned_while_nobody_waits(policy: str) -> None:
    steps = planner(policy, ROOMY, [block("a"), block("b")])
    assert (steps.waiting, steps.running) == (2, 0)
    plan = steps.plan(NOW_S, COSTS)
    assert (sorted(plan.joining), plan.held_back) == (["a", "b"], ())
    assert (steps.waiting, steps.running, steps.reason) == (0, 2, StopReason.QUEUE_EMPTY)
    assert steps.plan(NOW_S, COSTS) == StepPlan()
    steps.withdraw("a")
    assert steps.running == 1


def test_the_policy_decides_who_of_those_within_makes_room() -> None:
    """The same four: two that decode alone, and two that come. Each policy has its own idea of who goes on."""
    within = [block("leisurely", slack_s=5.0, waited_s=0.02), block("doomed", slack_s=-1.0, waited_s=0.02)]
    come = [block("pressed", slack_s=0.04, waited_s=0.01), block("patient", waited_s=0.005)]
    rows = {}
    for policy in SCHEDULING:
        steps, asking = planner(policy, FOR_TWO, []), [Asking(block(one.generation)) for one in within]
        for one in asking:
            steps.add(one.needs.generation, one)
        assert len(steps.plan(NOW_S, COSTS).joining) == 2
        for one, needs in zip(asking, within, strict=True):
            one.needs = needs
        for needs in come:
            steps.add(needs.generation, Asking(needs))
        plan = steps.plan(NOW_S, COSTS)
        rows[policy] = set(plan.joining), set(plan.held_back)
    assert rows == {
        "fcfs": (set(), set()),
        "wisp": (set(), set()),
        "wisp_alone": (set(), {"leisurely"}),
        "wisp_fair": (set(), set()),
        "slo_aware": ({"pressed"}, {"leisurely"}),
    }


@ALL_POLICIES
def test_autonomous_runs_take_turns_where_there_is_no_room_for_all(policy: str) -> None:
    names = "abcdefg"
    steps = planner(policy, FOR_TWO, [])
    asking = {name: Asking(block(name)) for name in names}
    for name in names:
        steps.add(name, asking[name])
    made, within = dict.fromkeys(names, 0), set[str]()
    for step in range(70):
        now_s = NOW_S + step
        plan = steps.plan(now_s, COSTS)
        assert steps.waits(names[0]) is (names[0] not in within.union(plan.joining) - set(plan.held_back))
        within = within.union(plan.joining) - set(plan.held_back)
        assert 1 <= len(within) <= 2
        for name in within:
            made[name] += 1
            asking[name].needs = replace(block(name), arrived_at_s=now_s + 1)
    assert min(made.values()) >= max(made.values()) / 2, made


def names(plan: StepPlan) -> tuple[list[str], list[str]]:
    return sorted(plan.joining), sorted(plan.held_back)


@ALL_POLICIES
def test_who_is_decided_by_the_step_under_way_needs_no_room_in_the_next_one(policy: str) -> None:
    steps = planner(policy, FOR_TWO, [])
    for name in ("now", "alone", "next", "later"):
        asking = Asking(block(name, waited_s=len(name) / 100), goes_on=name == "alone")
        steps.add(name, asking)
        if name == "alone":
            assert names(steps.plan(NOW_S, COSTS)) == (["alone", "now"], [])
    assert names(steps.plan(NOW_S, COSTS)) == (["later"], []), "it waits longer than the next"
    assert names(steps.plan(NOW_S, COSTS)) == ([], [])
    steps.note_step()
    steps.withdraw("now")
    assert names(steps.plan(NOW_S, COSTS)) == (["next"], []), "the step under way decides what was let in before it"


def test_a_prefix_is_not_done_with_one_step() -> None:
    steps = planner("fcfs", FOR_TWO, [])
    for name, cost in (("begun", VerifyCost(ROOMY.prefill_chunk_tokens + 1, 0)), ("now", VerifyCost(6, 0))):
        steps.add(name, Asking(block(name, cost=cost, waited_s=0.1), goes_on=False, prefill_tokens=cost.new_tokens))
    assert names(steps.plan(NOW_S, COSTS)) == (["begun", "now"], [])
    for name in ("next", "then"):
        steps.add(name, Asking(block(name)))
    assert names(steps.plan(NOW_S, COSTS)) == (["next"], [])


@ALL_POLICIES
def test_memory_that_is_told_of_later_holds_back(policy: str) -> None:
    steps = planner(policy, ROOMY, [block(name, memory_blocks=6) for name in "abc"])
    assert len(steps.plan(NOW_S, COSTS).joining) == 3
    steps.set_memory_blocks(12)
    assert steps.plan(NOW_S, COSTS) == StepPlan(), "nobody waits"
    steps.add("d", Asking(block("d", memory_blocks=6)))
    plan = steps.plan(NOW_S, COSTS)
    assert steps.running == 2
    assert steps.reason is StopReason.MEMORY
    assert len(plan.held_back) == 1 + len(plan.joining)


@ALL_POLICIES
@given(happens=st.lists(st.tuples(st.sampled_from("awlp"), st.sampled_from("abcde")), max_size=60))
def test_nobody_is_lost_or_doubled(policy: str, happens: list[tuple[str, str]]) -> None:
    steps, within, waiting = planner(policy, FOR_TWO, []), set[str](), set[str]()
    for number, (what, name) in enumerate(happens):
        if what == "l":
            steps.withdraw(name)
            within.discard(name)
            waiting.discard(name)
        elif what == "p":
            plan = steps.plan(NOW_S + number, COSTS)
            assert waiting >= set(plan.joining)
            assert within >= set(plan.held_back)
            within = (within | set(plan.joining)) - set(plan.held_back)
            waiting = (waiting | set(plan.held_back)) - set(plan.joining)
            assert bool(within) or not waiting, "progress"
        else:
            steps.add(name, Asking(block(name)))
            within.discard(name)
            waiting.add(name)
        assert (steps.running, steps.waiting) == (len(within), len(waiting))


DEAR = LinearCostModel(4.5e-3, 2e-7, 8e-6, 45e-3)
HALVES = (0.5, 0.25, 0.125, 0.0625, 0.03125)


def drafted(name: str, **more: object) -> PendingVerification:
    return replace(block(name, survivals=HALVES, expected_tokens=1.0 + sum(HALVES)), **more)  # type: ignore[arg-type]


def test_drafts_are_cut_as_they_join_and_never_again() -> None:
    names = [f"g{number}" for number in range(16)]
    steps = planner("fcfs", ROOMY, [*map(drafted, names), block("tree")])
    plan = steps.plan(NOW_S, DEAR)
    assert len(plan.joining) == 17
    assert dict(plan.cuts) == dict.fromkeys(names, 1)
    assert steps.min_survival == 0.25
    steps.add("more", Asking(drafted("more")))
    assert {name for name, _ in steps.plan(NOW_S, DEAR).cuts} == {"more"}


def test_one_alone_with_a_verifier_that_waits_for_it_keeps_its_draft() -> None:
    assert planner("fcfs", ROOMY, [drafted("a", elapsed_s=1.0)]).plan(NOW_S, DEAR).cuts == ()
    assert planner("fcfs", ROOMY, [drafted("a")]).plan(NOW_S, DEAR).cuts == (("a", 2),)


def test_a_cut_that_was_fixed_with_the_order_holds_whatever_the_step() -> None:
    """It is the same for a draft that came early, to an empty step, as for one that came late to a full one."""
    crowd = [drafted(f"g{number}") for number in range(32)]
    for others in ([], crowd):
        early = planner("fcfs", ROOMY, [drafted("a", min_survival=0.2), *others])
        assert dict(early.plan(NOW_S, DEAR).cuts)["a"] == 2
        whole = planner("fcfs", ROOMY, [drafted("a", min_survival=0.0), *others])
        assert "a" not in dict(whole.plan(NOW_S, DEAR).cuts)


def cuts_beside(one: PendingVerification) -> dict[str, int]:
    """What is left of drafts: of this one's, and of best effort that joins with it, whose drafts are cut."""
    crowd = [drafted(f"g{number}") for number in range(16)]
    cuts = dict(planner("slo_aware", ROOMY, [one, *crowd]).plan(NOW_S, DEAR).cuts)
    of_others = {tokens for name, tokens in cuts.items() if name != one.generation}
    assert of_others
    assert max(of_others) <= 2
    return cuts


def promised(slack_s: float = 0.5, elapsed_s: float = 0.3, **more: object) -> PendingVerification:
    """At 4 tokens/s, and so far ahead without what it has drafted."""
    deadline_at_s = NOW_S + slack_s + (1.0 + sum(HALVES)) / 4.0
    return drafted("promised", **{"deadline_at_s": deadline_at_s, "tokens_per_s": 4.0, "elapsed_s": elapsed_s, **more})


def test_where_the_device_takes_its_time_who_has_little_credit_keeps_its_draft() -> None:
    """Rounds are no shorter for less to verify, and so many of them bring too little."""
    assert "promised" not in cuts_beside(promised(slack_s=-0.3))
    assert "promised" not in cuts_beside(promised(slack_s=0.9))
    assert cuts_beside(promised(slack_s=1.1))["promised"] == 1
    assert cuts_beside(promised(elapsed_s=0.2))["promised"] == 1, "the verifier makes its rounds as long as they are"


def test_it_keeps_no_more_than_its_promise_needs() -> None:
    chain = (0.9, 0.8, 0.7, 0.6, 0.5, *(0.01,) * 8)
    one = promised(survivals=chain, expected_tokens=1.0 + sum(chain), cost=VerifyCost(14, 500), tokens_per_s=3.4)
    kept = cuts_beside(one)["promised"]
    assert 1 < kept <= 5


def test_where_not_all_can_be_kept_nobody_is_spared() -> None:
    assert cuts_beside(promised(tokens_per_s=1000.0))["promised"] == 1


def test_credit_moves_no_cut_that_was_fixed_with_the_order() -> None:
    assert cuts_beside(promised(min_survival=0.2))["promised"] == 2


def test_rules_switch_both_off() -> None:
    steps = StepPlanner(SCHEDULING["fcfs"].policy, ROOMY, StepRules(trims=False, holds=False))
    for number in range(16):
        steps.add(f"g{number}", Asking(drafted(f"g{number}")))
    steps.expect("late", NOW_S + 0.001)
    plan = steps.plan(NOW_S, DEAR)
    assert (len(plan.joining), plan.cuts, plan.hold_s) == (16, (), 0.0)


def test_an_idle_verifier_waits_for_who_is_expected_and_a_busy_one_for_nobody() -> None:
    steps = planner("fcfs", ROOMY, [block("a"), block("b")])
    steps.expect("c", NOW_S + 0.001)
    plan = steps.plan(NOW_S, DEAR)
    assert (plan.joining, steps.running) == ((), 0)
    assert 0.001 < plan.hold_s <= 0.005
    steps.add("c", Asking(block("c")))
    assert len(steps.plan(NOW_S + 0.001, DEAR).joining) == 3
    steps.expect("e", NOW_S + 0.002)
    steps.add("d", Asking(block("d")))
    assert steps.plan(NOW_S + 0.001, DEAR).joining == ("d",)


def test_who_does_not_come_is_waited_for_once() -> None:
    steps = planner("fcfs", ROOMY, [block("a")])
    steps.expect("lost", NOW_S + 0.002)
    held_s = steps.plan(NOW_S, DEAR).hold_s
    assert 0.002 < held_s <= 0.005
    assert steps.plan(NOW_S + held_s, DEAR).joining == ("a",)
    steps.withdraw("a")
    steps.add("a", Asking(block("a")))
    assert steps.plan(NOW_S + 1.0, DEAR).hold_s == 0.0


def test_holds_in_a_row_are_no_longer_than_one() -> None:
    """Another one is always expected a little later."""
    steps, now_s = planner("fcfs", ROOMY, [block("a")]), NOW_S
    for number in range(100):
        steps.expect(f"next{number}", now_s + 0.0005)
        plan = steps.plan(now_s, DEAR)
        if plan.joining:
            break
        now_s += plan.hold_s
    assert steps.running == 1
    assert 0.0 < now_s - NOW_S <= 0.005 + 1e-9


def test_nobody_is_waited_for_who_gave_up() -> None:
    steps = planner("fcfs", ROOMY, [block("a")])
    steps.expect("b", NOW_S + 0.002)
    steps.withdraw("b")
    assert steps.plan(NOW_S, DEAR).joining == ("a",)


@ALL_POLICIES
def test_who_overtakes_a_autonomous_run_is_not_held_for_others_and_takes_its_place_with_it(policy: str) -> None:
    """The verifier steps that autonomous run until it has what comes instead: it is not idle."""
    steps = planner(policy, FOR_TWO, [block("a", waited_s=0.3)])
    steps.plan(NOW_S, COSTS)
    steps.note_step()
    steps.expect("z", NOW_S + 0.001)
    steps.add("a", Asking(block("a", waited_s=0.01), goes_on=False), overtakes=True)
    plan = steps.plan(NOW_S, COSTS)
    assert (names(plan), plan.hold_s) == ((["a"], []), 0.0)
    steps.add("b", Asking(block("b", waited_s=0.01)))
    steps.add("c", Asking(block("c")))
    assert names(steps.plan(NOW_S, COSTS)) == (["b"], []), "what came instead is decided by the step behind"
    steps.add("b", Asking(block("b", waited_s=-1.0)), overtakes=True)
    plan = steps.plan(NOW_S, COSTS)
    assert (sorted(plan.held_back), steps.waits("b")) == (["b"] * steps.waits("b"), "b" not in plan.joining)
    steps.add("d", Asking(block("d")), overtakes=True)
    assert "d" not in steps.plan(NOW_S, COSTS).held_back, "it was in no step"


def test_kv_is_short_where_active_promises_need_more_than_there_is() -> None:
    steps = StepPlanner(SCHEDULING["slo_aware"].policy, replace(ROOMY, max_memory_blocks=9))
    for name in "ab":
        steps.add(name, Asking(block(name, slack_s=1.0, memory_blocks=5)))
        steps.plan(NOW_S, COSTS)
        steps.note_evicted("a" if name == "b" else "nobody")
        assert steps.kv_is_short is (name == "b")
    steps.set_memory_blocks(None)
    assert not steps.kv_is_short
    steps.set_memory_blocks(9)
    steps.over("a")
    assert not steps.kv_is_short


def test_a_prefix_that_many_share_makes_no_kv_short() -> None:
    """40 agents over a prefix of 600 blocks, each with one of its own: 640 are held, and nothing is evicted."""
    agents = [block(f"agent{i}", slack_s=1.0, memory_blocks=601) for i in range(40)]
    steps = planner("slo_aware", replace(ROOMY, max_memory_blocks=1000), agents)
    steps.plan(NOW_S, COSTS)
    assert not steps.kv_is_short
    steps.add("besteffort", Asking(block("besteffort", memory_blocks=601)))
    steps.plan(NOW_S, COSTS)
    steps.note_evicted("besteffort")
    assert not steps.kv_is_short, "what is evicted has no promise"
    steps.note_evicted("agent7")
    assert steps.kv_is_short


def test_what_active_promises_need_reaches_the_policy_until_they_are_over() -> None:
    class Seen(Fcfs):
        """First come, first served; keeps what it was told of promises."""

        def plan(self, *arguments: object) -> BatchPlan:
            """Keep and plan."""
            assert isinstance(arguments[4], Promised)
            told.append(arguments[4])
            return super().plan(*arguments)  # type: ignore[arg-type]

    told = list[Promised]()
    steps = StepPlanner(Seen(), ROOMY)
    for number, name in enumerate("ab"):
        steps.add(name, Asking(block(name, slack_s=1.0), goes_on=False))
        steps.plan(NOW_S + number, COSTS)
        steps.note_step()
        steps.withdraw(name)
    steps.over("a")
    steps.add("none", Asking(block("none")))
    steps.plan(NOW_S + 2.0, COSTS)
    one = load_of(PromisedNeed(4.0, 2.0, VerifyCost(6, 500)), COSTS)
    assert [each.round_s for each in told] == [0.5, 0.5, 0.5]
    assert [each.load for each in told] == pytest.approx([one, 2.0 * one, one])
    assert [each.least_load for each in told] == pytest.approx([one, 2.0 * one, one])


def test_a_prefix_in_the_step_is_no_reason_to_verify_more() -> None:
    """It is computed sooner or later: what is cut saves its own time whatever that takes."""
    names = [f"g{number}" for number in range(16)]
    alone = planner("fcfs", ROOMY, map(drafted, names)).plan(NOW_S, DEAR)
    steps = planner("fcfs", ROOMY, map(drafted, names))
    steps.add("cold", Asking(block("cold", cost=VerifyCost(400, 0)), prefill_tokens=399))
    assert dict(steps.plan(NOW_S, DEAR).cuts) == dict(alone.cuts)
    assert dict(alone.cuts) == dict.fromkeys(names, 1)


@ALL_POLICIES
def test_whoever_is_to_be_alone_is_and_the_others_go_on_behind_it(policy: str) -> None:
    steps = planner(policy, ROOMY, [block(name) for name in "abcd"])
    steps.plan(NOW_S, COSTS)
    steps.add("e", Asking(block("e")))
    alone = {"b", "e"}
    plan = steps.plan(NOW_S, COSTS, alone)
    assert (plan.joining, sorted(plan.held_back), steps.reason) == ((), ["a", "c", "d"], StopReason.ALONE)
    assert set(steps.under_way) == set("abcd"), "the others may be in the step that is being made"
    steps.note_step()
    assert set(steps.under_way) == {"b"}
    assert steps.plan(NOW_S, COSTS, alone) == StepPlan()
    steps.withdraw("b")
    plan = steps.plan(NOW_S, COSTS, alone - {"b"})
    assert (plan.joining, plan.held_back, set(steps.under_way)) == (("e",), (), {"e"})
    steps.withdraw("e")
    assert sorted(steps.plan(NOW_S, COSTS, ()).joining) == ["a", "c", "d"]


def test_one_that_waits_to_be_alone_comes_into_empty_steps() -> None:
    steps = planner("fcfs", ROOMY, [block(name) for name in "abc"])
    plan = steps.plan(NOW_S, COSTS, {"b"})
    assert (plan.joining, set(steps.under_way), steps.waiting) == (("b",), {"b"}, 2)

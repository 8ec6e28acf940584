"""Prompts of several accounts share the chunks of a verifier's passes, and those of one go as they always have."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.chunks import chunk_of
from outrider.contracts.cost import VerifyCost
from outrider.scheduling.fair_prefill import FairPrefill
from outrider.scheduling.policy import BatchLimits, PendingVerification
from outrider.scheduling.registry import SCHEDULING
from outrider.scheduling.steps import StepPlanner, StepRules
from tests.unit.scheduling.queues import COSTS, INFINITY, NOW_S, block

CHUNK = 100
LIMITS = BatchLimits(max_blocks=256, max_new_tokens=4096, prefill_chunk_tokens=CHUNK)
A, B = Account("a"), Account("b")


@dataclass(eq=False)
class Prompt:
    """One of so many tokens, which ends with its first token."""

    name: str
    account: Account
    tokens: int
    arrived_at_s: float
    slack_s: float = INFINITY
    goes_on: bool = False

    @property
    def prefill_tokens(self) -> int:
        return max(0, self.tokens - 1)

    def pending(self) -> PendingVerification:
        return replace(
            block(self.name, slack_s=self.slack_s, cost=VerifyCost(self.tokens, 0)),
            arrived_at_s=self.arrived_at_s,
            prefill_tokens=self.prefill_tokens,
            first=True,
        )


@dataclass
class Verifier:
    """Steps as the real one does: those within, by the order it was told, over one chunk."""

    planner: StepPlanner
    now_s: float = NOW_S
    prompts: dict[str, Prompt] = field(default_factory=dict)
    within: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)  # of the step under way
    ranks: tuple[str, ...] = ()
    computed: list[tuple[str, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def ask(self, name: str, account: Account, tokens: int, slack_s: float = INFINITY) -> None:
        prompt = Prompt(name, account, tokens, self.now_s, slack_s)
        self.prompts[name] = prompt
        self.planner.add(name, prompt, account)

    def plan(self) -> None:
        plan = self.planner.plan(self.now_s, COSTS)
        self.within = [name for name in self.within if name not in plan.held_back]
        self.within += [name for name in plan.joining if name not in self.within]
        if plan.prefill_order is not None:
            self.ranks = plan.prefill_order

    def step(self) -> None:
        """The one under way ends, and the next one begins before what is planned by what it brought is heard of."""
        self.now_s += 0.01
        members = self.members
        if not members:
            self.planner.note_step()
            members = self.in_order()
        left, ended = CHUNK, []
        for name in members:
            prompt = self.prompts[name]
            taken, counted = chunk_of(prompt.tokens, 1, left)
            left -= counted
            prompt.tokens -= taken
            self.computed.append((name, counted))
            if not prompt.tokens:
                ended.append(name)
        self.within = [name for name in self.within if name not in ended]
        self.members = self.in_order()
        self.planner.note_step()
        for name in ended:
            self.planner.withdraw(name)
            self.ended.append(name)
        self.plan()

    def in_order(self) -> list[str]:
        return sorted(self.within, key=lambda name: self.ranks.index(name) if name in self.ranks else 999)

    def of(self, account: Account) -> int:
        return sum(tokens for name, tokens in self.computed if self.prompts[name].account == account)


def verifier(policy: str = "slo_aware") -> Verifier:
    return Verifier(StepPlanner(SCHEDULING[policy].policy, LIMITS, StepRules(holds=False)))


@pytest.mark.parametrize("policy", SCHEDULING)
def test_a_prompt_has_half_of_the_chunks_beside_another_accounts_flood(policy: str) -> None:
    made = verifier(policy)
    for i in range(16):
        made.ask(f"a{i:02}", A, 751)
    made.plan()
    for _ in range(20):
        made.step()
    made.ask("b", B, 751)
    made.plan()
    steps, before = 0, made.of(A)
    while "b" not in made.ended:
        made.step()
        steps += 1
    assert steps <= 2 * 8 + 3, "eight of its chunks, as many of the other's, and what was under way"
    assert made.of(A) - before >= 600, "which gets on as well"


def test_of_two_floods_each_has_half() -> None:
    made = verifier()
    for i in range(16):
        made.ask(f"a{i:02}", A, 901)
        made.ask(f"b{i:02}", B, 301)
    made.plan()
    for _ in range(60):
        made.step()
    assert abs(made.of(A) - made.of(B)) <= 3 * CHUNK
    assert made.of(A) + made.of(B) >= 60 * CHUNK - 16, "no chunk is lost by it"


def test_short_prompts_of_two_accounts_share_a_chunk_and_who_comes_first_does_not_take_it_again() -> None:
    """The verifier has the long one from before: without an order of its own it would give it each chunk."""
    made = verifier()
    made.ask("a", A, 2001)
    made.ask("a2", A, 2001)
    made.plan()
    made.step()
    for i in range(5):
        made.ask(f"b{i}", B, 41)
    made.plan()
    for _ in range(6):
        made.step()
    assert sorted(made.ended) == [f"b{i}" for i in range(5)]


def test_accounts_share_within_a_class_and_promises_go_first() -> None:
    made = verifier("fcfs")
    prefill = FairPrefill()
    blocks = [
        Prompt("promised", A, 300, NOW_S - 3.0, slack_s=0.5),
        Prompt("a", A, 300, NOW_S - 2.0),
        Prompt("a2", A, 300, NOW_S - 1.5),
        Prompt("b", B, 300, NOW_S - 1.0),
    ]
    for one in blocks:
        prefill.add(one.name, one.account)
    shown = {one.generation: one for one in prefill.in_turn([one.pending() for one in blocks], (), CHUNK)}
    assert shown["promised"] == blocks[0].pending()
    blocks[1].tokens = 200
    shown = {one.generation: one for one in prefill.in_turn([one.pending() for one in blocks], (), CHUNK)}
    assert sorted(("a", "a2", "b"), key=lambda name: shown[name].arrived_at_s) == ["b", "a", "a2"]
    assert shown["b"].arrived_at_s == pytest.approx(NOW_S - 2.0)
    assert [shown[one.name] for one in blocks[1:3]] == [one.pending() for one in blocks[1:3]]
    assert made.ended == []


flood = st.lists(
    st.tuples(st.sampled_from([A, B, Account("a", "x"), Account("c")]), st.integers(1, 350), st.integers(0, 3)),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(flood, st.sampled_from(["slo_aware", "fcfs", "wisp_fair"]))
def test_every_prompt_is_computed_no_chunk_is_lost_and_nothing_is_remembered(
    asked: list[tuple[Account, int, int]], policy: str
) -> None:
    made = verifier(policy)
    for i, (account, tokens, steps) in enumerate(asked):
        made.ask(f"{i:02}", account, tokens)
        made.plan()
        for _ in range(steps):
            made.step()
    steps = 0
    while len(made.ended) < len(asked):
        made.step()
        steps += 1
        assert steps <= sum(tokens for _, tokens, _ in asked) / CHUNK + 2 * len(asked) + 3
    made.ask("last", NO_ACCOUNT, 2)
    made.plan()
    assert made.planner._prefill.remembered == 1  # noqa: SLF001 (it is to be forgotten)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 350), min_size=1, max_size=14), st.sampled_from(list(SCHEDULING)))
def test_prompts_of_one_account_go_as_those_of_nobody(asked: list[int], policy: str) -> None:
    ran = []
    for account in (NO_ACCOUNT, A):
        made = verifier(policy)
        for i, tokens in enumerate(asked):
            made.ask(f"{i:02}", account, tokens)
        made.plan()
        for _ in range(12):
            made.step()
        ran.append(made.computed)
        assert not made.ranks
    assert ran[0] == ran[1]

"""Measurements of one response, and those of its rounds in which the method was at work.

A response starts without a drafter (prefill, lease) and may end with a token that cannot be drafted. These rounds are
the same for all methods and are left out.

*Charged* seconds of a round: the link model's time for the bits that were really sent (``outrider.link.latency``), and
measured draft, queue, verification and orchestration. They differ from wall seconds by the machine's overhead of an
exchange.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.bench.protocols.plan import NO_DRAFT, Cell
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.rounds.timing import RoundTiming
from outrider.selection.situation import ChoiceReason


@dataclass(frozen=True, slots=True)
class Choice:
    reason: str
    plan: DraftPlan | None


@dataclass(frozen=True, slots=True)
class Round:
    """One measured round; ``plan`` is None if nothing was drafted."""

    timing: RoundTiming
    plan: DraftPlan | None

    @property
    def exchanged(self) -> bool:
        return self.timing.up_bits > 0

    def charged_s(self, cell: Cell) -> float:
        """Seconds by the link's model and the machine's measured times."""
        t = self.timing
        compute_s = t.draft_s + t.queue_s + t.verify_s + max(t.orchestration_s, 0.0)
        return compute_s + link_s(cell, t)


@dataclass(frozen=True, slots=True)
class Response:
    cell: Cell
    method: str
    repeat: int
    prompt: int
    elapsed_s: float  # from the request to the end of the answer, as the client saw it
    rounds: tuple[Round, ...]  # those in which the method was at work
    row_requests: int  # rows requested again because no candidate for a correction was taken
    timed: tuple[float, int, int]  # seconds, and bits up and down, of all rounds that have timings
    sent: tuple[int, int]  # bits up and down of all messages
    choices: tuple[Choice, ...]  # of ``rounds``; fewer if the service did not report some

    @property
    def tokens(self) -> int:
        return sum(one.timing.committed_tokens for one in self.rounds)

    @property
    def hidden_s(self) -> float:
        """Seconds outside all timed rounds: HTTP, and rounds without a result."""
        return max(self.elapsed_s - self.timed[0], 0.0)


def parse_choices(reports: Sequence[Mapping[str, object]]) -> tuple[Choice, ...]:
    return tuple(_choice(str(one["reason"]), one["chosen"]) for one in reports)


def _choice(reason: str, chosen: object) -> Choice:
    assert isinstance(chosen, Mapping)
    plan = None
    if chosen["protocol"] is not None:
        plan = DraftPlan(ProtocolName(chosen["protocol"]), int(chosen["window"]), tuple(chosen["expansion"]))
    return Choice(reason, plan)


def at_work(
    method: str, timings: Sequence[RoundTiming], choices: Sequence[Choice]
) -> tuple[tuple[Round, ...], tuple[Choice, ...]]:
    """The rounds in which the method was at work, with their plans, and their choices."""
    reasons = [choice.reason for choice in choices]
    first = 1
    if method != NO_DRAFT:
        first = next((n for n, reason in enumerate(reasons) if reason != ChoiceReason.NO_DRAFTER), len(reasons))
        first = max(first, 1)
    last = len(reasons)
    while last > first and reasons[last - 1] == ChoiceReason.LAST_TOKEN:
        last -= 1
    kept = list(timings[first:])
    for _ in range(len(reasons) - last):
        if kept and kept[-1].protocol is None:
            kept.pop()
    chosen = tuple(choices[first:last])
    plans = [choice.plan for choice in chosen]
    if len(plans) != len(kept):  # only if devices draw corrections, and those draft chains
        plans = [None if t.protocol is None else DraftPlan(t.protocol, t.drafted_tokens) for t in kept]
    return tuple(Round(t, None if t.protocol is None else p) for t, p in zip(kept, plans, strict=True)), chosen


def link_s(cell: Cell, timing: RoundTiming) -> float:
    """The link model's time for a round's messages; 0 if there were none."""
    return exchange_s(profile_csi(cell.profile), timing.down_bits, timing.up_bits) if timing.up_bits else 0.0

"""Plan of ``outrider bench protocols``: cells of links and temperatures, methods in each, and what is measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from lab.bench.harness.statistics import rotated
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import ProtocolName
from outrider.link.latency import exchange_s
from outrider.link.profiles import LinkProfile
from outrider.link.state import profile_csi
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.timing import RoundTiming
from outrider.selection.situation import ChoiceReason

LINKS = tuple(LinkProfile(mbps * 1e6, mbps * 1e6, ms / 1e3) for mbps, ms in product((1.0, 20.0, 500.0), (0.0, 50.0)))
TEMPERATURES = (0.0, 1.0)
NO_DRAFT, CHEAPEST = "no_draft", "cheapest"
FIXED = (NO_DRAFT, *(name for name in PROTOCOLS if not PROTOCOLS[name].judged))  # lossless methods that choose nothing
METHODS = (*FIXED, CHEAPEST)


@dataclass(frozen=True, slots=True)
class Cell:
    profile: LinkProfile
    temperature: float

    @property
    def name(self) -> str:
        """Name such as ``20mbps-50ms-t1``, for ``--cells``; of unlike directions ``10/50mbps``, the uplink first."""
        link = self.profile
        rates = dict.fromkeys(f"{bps / 1e6:g}" for bps in (link.up_bps, link.down_bps))
        return f"{'/'.join(rates)}mbps-{link.rtt_s * 1e3:g}ms-t{self.temperature:g}"


def cells(only: Sequence[str], links: Sequence[LinkProfile], temperatures: Sequence[float]) -> tuple[Cell, ...]:
    """The cells to measure: all, or those whose name begins with one of ``only``.

    Slow links come first: a coordinator's link estimate is updated by traffic, and faster when the rate rises.
    """
    every = tuple(Cell(*of) for of in product(sorted(links, key=lambda link: link.up_bps), dict.fromkeys(temperatures)))
    strangers = [prefix for prefix in only if not any(cell.name.startswith(prefix) for cell in every)]
    if strangers:
        raise ParameterError("--cells", f"beginnings of {', '.join(cell.name for cell in every)}", strangers[0])
    return tuple(cell for cell in every if not only or cell.name.startswith(tuple(only)))


def options(method: str, plan: DraftPlan | None = None) -> dict[str, object]:
    """``outrider`` options of a request by this method; without a ``plan`` the service chooses window and tree."""
    if method == NO_DRAFT:
        return {"window": 0}
    if method == CHEAPEST:
        return {}
    fixed: dict[str, object] = {} if plan is None else {"window": plan.window}
    shape: dict[str, object] = {} if plan is None or not plan.expansion else {"expansion": list(plan.expansion)}
    return {"protocol": method, **fixed, **shape}


@dataclass(frozen=True, slots=True)
class Turn:
    repeat: int
    prompt: int
    method: str


def turns(repeats: int, prompts: int, methods: Sequence[str] = METHODS) -> Iterator[Turn]:
    """Every method answers a prompt before any answers the next one, in rotated order."""
    for number, (repeat, prompt) in enumerate(product(range(repeats), range(prompts))):
        for method in rotated(methods, number):
            yield Turn(repeat, prompt, method)


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
        """Seconds by the link's model, of the bits that were really sent, and the machine's measured times.

        They differ from wall seconds by the machine's overhead of an exchange.
        """
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
    """The rounds in which the method was at work, with their plans, and their choices.

    A response starts without a drafter (prefill, lease) and may end with a token that cannot be drafted. These rounds
    are the same for all methods and are left out.
    """
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

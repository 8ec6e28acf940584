"""``outrider bench protocols``: every protocol compared on a real cluster with emulated links.

Starts the embedded cluster and emulates links of 1, 20 and 500 Mbps with RTTs of 0 and 50 ms. On each, greedy and at
temperature 1, the same prompts are answered without drafts, by each protocol alone, and by ``cheapest``, which chooses
protocol and window every round. A fixed protocol uses the plan that the service chose most often when only the protocol
was given. Methods take turns prompt by prompt; there is one request at a time.

The comparison uses *charged* time: the link's model for the bits really sent, plus measured computation (see
``lab.bench.protocols.plan``); payload bits per committed token are listed.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from cluster.local import running
from cluster.option_types import integer, new_file, positive_int
from cluster.options import add_config_options, read_config
from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.record import write_record
from lab.bench.harness.running import RunningService
from lab.bench.harness.statistics import Estimate, picks, ratio
from lab.bench.load.client import ServiceUnusableError, open_client
from lab.bench.protocols.plan import (
    CHEAPEST,
    FIXED,
    METHODS,
    NO_DRAFT,
    Cell,
    Response,
    Turn,
    at_work,
    cells,
    options,
    parse_choices,
    turns,
)
from lab.reports.columns import Columns, show_columns
from outrider.config.schema import Config
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ConfigError

_WARM = Cell(20.0, 0.0, 1.0)
_SETTLING_TOKENS = 24  # more exchanges with large messages than half of what is remembered of a link
_PILOT_TOKENS = 16
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Amount:
    """Extent: responses of this many tokens, to each prompt this many times, by every method."""

    tokens: int
    prompts: int
    repeats: int


async def measure(url: str, config: Config, chosen: Sequence[Cell], amount: Amount) -> list[Response]:
    found: list[Response] = []
    per_cell = len(METHODS) * amount.prompts * amount.repeats
    async with open_client(url, _TIMEOUT_S) as client:
        service = RunningService(client, config)
        with tqdm(total=len(chosen) * per_cell, desc="warming up", disable=None) as bar:
            await _warm_up(service)
            link: tuple[float, float] | None = None
            for cell in chosen:
                bar.set_description(f"{cell.name}: settling")
                if link != (link := (cell.rate_mbps, cell.rtt_ms)):
                    await _settle(service, cell)
                plans = {method: await _pilot(service, cell, method) for method in METHODS}
                bar.set_description(cell.name)
                for turn in turns(amount.repeats, amount.prompts):
                    asked = options(turn.method, plans[turn.method])
                    found.append(await _ask(service, cell, turn, PROMPTS[turn.prompt], amount.tokens, asked))
                    bar.update()
    return found


async def _warm_up(service: RunningService) -> None:
    """Warm up code paths, and the acceptance statistics of all rules, which ``cheapest`` chooses by."""
    await service.emulate(_WARM.profile)
    for temperature in (0.0, 1.0):
        cell = Cell(_WARM.rate_mbps, _WARM.rtt_ms, temperature)
        for number, method in enumerate(METHODS):
            asked = options(method, DraftPlan("token_ids", 2))
            await _ask(service, cell, Turn(0, number, method), PROMPTS[-1 - number], _PILOT_TOKENS, asked)


async def _settle(service: RunningService, cell: Cell) -> None:
    """Change the link, and send enough for the coordinator to measure it: rows up (dsd) and down (dssd)."""
    await service.emulate(cell.profile)
    sampled = Cell(cell.rate_mbps, cell.rtt_ms, 1.0)
    for protocol in ("dsd", "dssd"):
        asked = options(protocol, DraftPlan(protocol, 1))
        await _ask(service, sampled, Turn(0, 0, protocol), PROMPTS[-1], _SETTLING_TOKENS, asked)


async def _pilot(service: RunningService, cell: Cell, method: str) -> DraftPlan | None:
    """The plan that a method is fixed to: the service's most frequent choice for the protocol with a free window.

    A draft of one token if it chose none; None for methods that are not fixed.
    """
    if method in (NO_DRAFT, CHEAPEST):
        return None
    protocol = method
    answer = await _ask(service, cell, Turn(0, 0, method), PROMPTS[-2], _PILOT_TOKENS, options(method))
    counts = Counter(choice.plan for choice in answer.choices if choice.plan is not None)
    single = DraftPlan(protocol, 1, (1,) if protocol == "tslt_tree" else ())
    return counts.most_common(1)[0][0] if counts else single


async def _ask(
    service: RunningService, cell: Cell, turn: Turn, prompt: str, tokens: int, options: dict[str, object]
) -> Response:
    """Request one response of exactly ``tokens`` tokens; ``ServiceUnusableError`` if it is refused or incomplete."""
    said = await service.ask(
        prompt, {**options, "explain": True}, max_tokens=tokens, temperature=cell.temperature, ignore_eos=True
    )
    if said.tokens != tokens:
        raise ServiceUnusableError(f"needs {tokens} tokens by {options}, found {said.tokens}; see its log")
    usage, timings = said.usage, said.timings
    rounds, choices = at_work(turn.method, timings, parse_choices(usage.get("choices", ())))
    return Response(
        cell=cell,
        method=turn.method,
        repeat=turn.repeat,
        prompt=turn.prompt,
        elapsed_s=said.elapsed_s,
        rounds=rounds,
        row_requests=max(int(usage["rounds"]) - len(timings), 0),
        timed=(sum(t.total_s for t in timings), sum(t.up_bits for t in timings), sum(t.down_bits for t in timings)),
        sent=(int(usage["payload_bits"]["up"]), int(usage["payload_bits"]["down"])),
        choices=choices,
    )


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """One method in one cell.

    Attributes:
        plans: drafted plans, most frequent first, with their share of rounds; None is no draft.
    """

    cell: Cell
    method: str
    plans: tuple[tuple[DraftPlan | None, float], ...]
    responses: int
    tokens: int  # committed while the method was at work; the figures below are over these
    wall_s: Estimate  # measured seconds per token
    charged_s: Estimate  # with the link's model
    up_bits: Estimate  # payload per token; likewise ``down_bits``
    down_bits: Estimate
    accepted_fraction: Estimate | None  # accepted over draft tokens; None if nothing was drafted
    accepted_len: Estimate | None  # accepted tokens per round with a draft
    rounds: Estimate  # per token
    row_requests: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``cheapest`` against the fixed method that turned out best, by charged seconds per token."""

    cell: Cell
    best: str
    best_s: float
    cheapest_s: float
    ratio: Estimate

    @property
    def within_tenth(self) -> bool:
        return self.ratio.mean <= 1.1


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of one response while its method was at work."""

    wall_s: float
    charged_s: float


def seconds(responses: Sequence[Response]) -> dict[int, Seconds]:
    """Seconds by ``id`` of the response. Rounds without a result (no candidate taken) count as measured in all."""
    usual_s = median(response.hidden_s for response in responses if not response.row_requests)
    found = {}
    for response in responses:
        lost_s = max(response.hidden_s - usual_s, 0.0) if response.row_requests else 0.0
        rounds, cell = response.rounds, response.cell
        found[id(response)] = Seconds(
            lost_s + sum(one.timing.total_s for one in rounds), lost_s + sum(one.charged_s(cell) for one in rounds)
        )
    return found


def figures(responses: Sequence[Response], of: dict[int, Seconds]) -> MethodFigures:
    rounds = [response.rounds for response in responses]
    tokens = [response.tokens for response in responses]

    def per(top: Callable[[Response], float], bottom: Sequence[float] = tokens) -> Estimate:
        return ratio([top(response) for response in responses], bottom)

    drafted = [sum(one.timing.drafted_tokens for one in some) for some in rounds]
    drafts = [sum(one.timing.drafted_tokens > 0 for one in some) for some in rounds]

    def accepted(response: Response) -> float:
        return sum(one.timing.accepted_tokens for one in response.rounds)

    plans = [one.plan for some in rounds for one in some]
    counts = {plan: plans.count(plan) for plan in set(plans)}
    return MethodFigures(
        cell=responses[0].cell,
        method=responses[0].method,
        plans=tuple((plan, n / len(plans)) for plan, n in sorted(counts.items(), key=lambda item: -item[1])),
        responses=len(responses),
        tokens=sum(tokens),
        wall_s=per(lambda response: of[id(response)].wall_s),
        charged_s=per(lambda response: of[id(response)].charged_s),
        up_bits=per(lambda response: _bits(response)[0]),
        down_bits=per(lambda response: _bits(response)[1]),
        accepted_fraction=per(accepted, drafted) if sum(drafted) else None,
        accepted_len=per(accepted, drafts) if sum(drafted) else None,
        rounds=per(lambda response: len(response.rounds)),
        row_requests=sum(response.row_requests for response in responses),
    )


def compare(cell: Cell, responses: Sequence[Response], of: dict[int, Seconds]) -> Comparison:
    """Compare by charged seconds; the interval redraws turns (repetition and prompt), common to all methods."""
    turns = sorted({(response.repeat, response.prompt) for response in responses})
    spent, made = ({method: np.zeros(len(turns)) for method in (*FIXED, CHEAPEST)} for _ in range(2))
    for response in responses:
        turn = turns.index((response.repeat, response.prompt))
        spent[response.method][turn] += of[id(response)].charged_s
        made[response.method][turn] += response.tokens
    measured = {method: spent[method].sum() / made[method].sum() for method in FIXED if made[method].sum()}
    best = min(measured, key=measured.__getitem__)
    redrawn = picks(len(turns))

    def resampled(method: str) -> Floats:
        rates: Floats = spent[method][redrawn].sum(1) / made[method][redrawn].sum(1)
        return rates

    cheapest_s = float(spent[CHEAPEST].sum() / made[CHEAPEST].sum())
    low, high = np.quantile(resampled(CHEAPEST) / resampled(best), (0.025, 0.975))
    return Comparison(
        cell, best, measured[best], cheapest_s, Estimate(cheapest_s / measured[best], float(low), float(high))
    )


def plan_name(plan: DraftPlan | None) -> str:
    """Name such as ``tslt 2`` or ``tslt_tree <2,2>``."""
    if plan is None:
        return NO_DRAFT
    shape = f"<{','.join(map(str, plan.expansion))}>" if plan.expansion else str(plan.window)
    return f"{plan.protocol} {shape}"


def _bits(response: Response) -> tuple[int, int]:
    up = sum(one.timing.up_bits for one in response.rounds)
    down = sum(one.timing.down_bits for one in response.rounds)
    if response.row_requests:  # rounds without a taken candidate have no timing
        up += max(response.sent[0] - response.timed[1], 0)
        down += max(response.sent[1] - response.timed[2], 0)
    return up, down


_METHODS: Columns[MethodFigures] = (
    ("method", lambda one: one.method),
    ("drafts", lambda one: ", ".join(f"{plan_name(plan)} {share:.0%}" for plan, share in one.plans[:2])),
    ("ms/token charged", lambda one: one.charged_s.shown(1e3, 1)),
    ("wall", lambda one: one.wall_s.shown(1e3, 1)),
    ("bits up/token", lambda one: f"{one.up_bits.mean:.0f}"),
    ("down/token", lambda one: f"{one.down_bits.mean:.0f}"),
    ("accepted", lambda one: "-" if one.accepted_fraction is None else f"{one.accepted_fraction.mean:.2f}"),
    ("accepted/round", lambda one: "-" if one.accepted_len is None else f"{one.accepted_len.mean:.2f}"),
    ("rounds/token", lambda one: f"{one.rounds.mean:.2f}"),
)
_COMPARISONS: Columns[Comparison] = (
    ("cell", lambda one: one.cell.name),
    ("best fixed", lambda one: one.best),
    ("ms/token", lambda one: f"{one.best_s * 1e3:.1f}"),
    ("cheapest", lambda one: f"{one.cheapest_s * 1e3:.1f}"),
    ("ratio", lambda one: one.ratio),
    ("within 10 %", lambda one: "yes" if one.within_tenth else "NO"),
)


def show_figures(found: Sequence[MethodFigures]) -> None:
    for cell in dict.fromkeys(one.cell for one in found):
        rows = [one for one in found if one.cell == cell]
        show_columns(f"{cell.name} ({rows and found[0].responses} responses per method)", _METHODS, rows)


def show_comparisons(found: Sequence[Comparison]) -> None:
    show_columns("cheapest by charged seconds", _COMPARISONS, found)


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    config = read_config(args)
    if config.drafter_count == 0 or any(group.link is not None for group in config.drafters):
        raise ConfigError("drafters", "at least one, and link: null (the bench sets the links itself)", config.drafters)
    chosen, amount = cells(args.cells), Amount(args.tokens, args.prompts, args.repeats)
    with running(config) as url:
        found = asyncio.run(measure(url, config, chosen, amount))
    _report(found, args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench protocols", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--cells", nargs="*", default=[], metavar="NAME", help="beginnings of names such as 20mbps-50ms-t1")
    add("--tokens", type=positive_int, default=20, help="of each response (default: %(default)s)")
    add(
        "--prompts", type=integer(1, len(PROMPTS)), default=4, help="different ones in each cell (default: %(default)s)"
    )
    add("--repeats", type=positive_int, default=1, help="of each prompt by each method (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser


def _report(found: Sequence[Response], args: argparse.Namespace) -> None:
    of = seconds(found)
    table: list[MethodFigures] = []
    charged: list[Comparison] = []
    for cell in dict.fromkeys(one.cell for one in found):
        mine = [one for one in found if one.cell == cell]
        table += [figures([one for one in mine if one.method == method], of) for method in METHODS]
        charged.append(compare(cell, mine, of))
    show_figures(table)
    show_comparisons(charged)
    if args.json is not None:
        write_record(args.json, args, {"figures": table, "charged": charged})

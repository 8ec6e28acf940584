"""Measurement: a warm-up, then cell by cell every method in turn on the same prompts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.running import RunningService
from lab.bench.load.client import ServiceUnusableError, open_client
from lab.bench.protocols.plan import (
    CHEAPEST,
    METHODS,
    NO_DRAFT,
    Cell,
    Response,
    Turn,
    at_work,
    options,
    parse_choices,
    turns,
)
from outrider.config.schema import Config
from outrider.contracts.drafting import DraftPlan
from outrider.link.profiles import LinkProfile

_WARM = LinkProfile(20e6, 20e6, 0.0)
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
            link: LinkProfile | None = None
            for cell in chosen:
                bar.set_description(f"{cell.name}: settling")
                if link != (link := cell.profile):
                    await _settle(service, link)
                plans = {method: await _pilot(service, cell, method) for method in METHODS}
                bar.set_description(cell.name)
                for turn in turns(amount.repeats, amount.prompts):
                    asked = options(turn.method, plans[turn.method])
                    found.append(await _ask(service, cell, turn, PROMPTS[turn.prompt], amount.tokens, asked))
                    bar.update()
    return found


async def _warm_up(service: RunningService) -> None:
    """Warm up code paths, and the acceptance statistics of all rules, which ``cheapest`` chooses by."""
    await service.emulate(_WARM)
    for temperature in (0.0, 1.0):
        cell = Cell(_WARM, temperature)
        for number, method in enumerate(METHODS):
            asked = options(method, DraftPlan("token_ids", 2))
            await _ask(service, cell, Turn(0, number, method), PROMPTS[-1 - number], _PILOT_TOKENS, asked)


async def _settle(service: RunningService, link: LinkProfile) -> None:
    """Change the link, and send enough for the coordinator to measure it: rows up (dsd) and down (dssd)."""
    await service.emulate(link)
    sampled = Cell(link, 1.0)
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

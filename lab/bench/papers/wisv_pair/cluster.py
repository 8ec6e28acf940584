"""Table I's rows on a real cluster over emulated links: each method at each window answers the same tasks in turn.

One request at a time. Figures are of a method on a link at a window, with 95 % intervals over tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from lab.bench.harness.running import RunningService
from lab.bench.harness.statistics import Estimate, ratio, rotated
from lab.bench.load.client import open_client
from lab.training.tasks.task import Task
from outrider.config.schema import Config
from outrider.link.profiles import PROFILES

LINKS = {
    "500mbps-5ms": PROFILES["good_500mbps_5ms"],
    "500mbps-50ms": PROFILES["good_500mbps_50ms"],
    "20mbps-5ms": PROFILES["poor_20mbps_5ms"],
    "20mbps-50ms": PROFILES["poor_20mbps_50ms"],
    "wifi-2m": PROFILES["wifi_2m"],
    "wifi-20m": PROFILES["wifi_20m"],
}
WINDOWS = (2, 4, 10, 16, 24, 32, 64)
_TIMEOUT_S = 1800.0
_SETTLING_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    options: Mapping[str, object] = field(default_factory=dict)  # of the request, without its window
    temperature: float = 0.0
    free: bool = False  # the service chooses the window
    slow: bool = False  # it sends whole distributions, and answers one task only


_SEMANTIC: Mapping[str, object] = {"verification": "semantic"}
STRICT = Method("SD greedy", {"protocol": "token_ids"})
REJECT = Method("SD reject", {"protocol": "dsd"}, temperature=1.0, slow=True)
FULL = Method("WISV full", {**_SEMANTIC, "protocol": "wisv_full"})
SELECTIVE = Method("WISV selective", {**_SEMANTIC, "protocol": "wisv_selective"})
FULL_FREE = Method("WISV full, K free", FULL.options, free=True)
SELECTIVE_FREE = Method("WISV selective, K free", SELECTIVE.options, free=True)
CHOSEN = Method("own choice", _SEMANTIC, free=True)
METHODS = (STRICT, REJECT, FULL, SELECTIVE, FULL_FREE, SELECTIVE_FREE, CHOSEN)


@dataclass(frozen=True, slots=True)
class Turn:
    link: str
    task: Task
    method: Method
    window: int | None  # None: free

    @property
    def options(self) -> dict[str, object]:
        """The request's ``outrider``."""
        return {**self.method.options} | ({} if self.window is None else {"window": self.window})


def turns(link: str, tasks: Sequence[Task], methods: Sequence[Method], windows: Sequence[int]) -> Iterator[Turn]:
    """Every method at every window answers a task before any answers the next one, in rotated order.

    Slow methods answer the first task alone; ``windows`` are for methods whose window is not free.
    """
    kinds = [(method, window) for method in methods for window in ((None,) if method.free else windows)]
    for number, task in enumerate(tasks):
        for method, window in rotated(kinds, number):
            if number == 0 or not method.slow:
                yield Turn(link, task, method, window)


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """Select ``count`` tasks of as many kinds as possible: the first of each kind, then the second of each."""
    seen: dict[str, int] = {}
    places = []
    for number, task in enumerate(tasks):
        seen[task.kind] = seen.get(task.kind, 0) + 1
        places.append((seen[task.kind], number))
    return [tasks[number] for _, number in sorted(places)[:count]]


@dataclass(frozen=True, slots=True)
class Answer:
    link: str
    method: str
    window: int | None  # requested; None: free
    task: str
    score: float
    tokens: int
    rounds: int  # verify outcomes, the prompt's own included
    elapsed_s: float
    judged: int  # mismatches that a head decided, of which ``overrides`` passed
    overrides: int


async def measured(
    url: str, config: Config, links: Sequence[str], tasks: Sequence[Task], windows: Sequence[int], most_tokens: int
) -> list[Answer]:
    """Ask by all methods on one link after another; see ``turns``."""
    answers: list[Answer] = []
    async with open_client(url, _TIMEOUT_S) as client:
        service = RunningService(client, config)
        for link in links:
            await service.emulate(LINKS[link])
            for method in (STRICT, FULL):  # the service measures the link and the acceptance of drafts
                await _asked(service, Turn(link, tasks[0], method, 4), _SETTLING_TOKENS)
            planned = list(turns(link, tasks, METHODS, windows))
            with tqdm(planned, desc=link, unit="answer", disable=None) as bar:
                answers += [await _asked(service, turn, most_tokens) for turn in bar]
    return answers


async def _asked(service: RunningService, turn: Turn, most_tokens: int) -> Answer:
    said = await service.ask(
        turn.task.prompt, turn.options, max_tokens=most_tokens, temperature=turn.method.temperature
    )
    return Answer(
        link=turn.link,
        method=turn.method.name,
        window=turn.window,
        task=turn.task.key,
        score=turn.task.score(said.text),
        tokens=said.tokens,
        rounds=int(said.usage["rounds"]),
        elapsed_s=said.elapsed_s,
        judged=int(said.usage.get("judged_tokens", 0)),
        overrides=sum(map(len, said.usage.get("overrides", ()))),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One method at one window on one link; ``latency_s`` and ``rounds`` are per answer."""

    link: str
    method: str
    window: int | None
    tasks: int
    score: Estimate
    aal: Estimate
    rounds: Estimate
    latency_s: Estimate
    tokens_per_s: Estimate
    passed: float  # share of the judged mismatches


def rows(answers: Sequence[Answer]) -> list[Row]:
    """In order of first appearance."""
    groups: dict[tuple[str, str, int | None], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.link, answer.method, answer.window), []).append(answer)
    return [_row(*key, own) for key, own in groups.items()]


def _row(link: str, method: str, window: int | None, own: Sequence[Answer]) -> Row:
    each = [1.0] * len(own)
    tokens, rounds = [float(one.tokens) for one in own], [float(one.rounds) for one in own]
    seconds = [one.elapsed_s for one in own]
    judged = sum(one.judged for one in own)
    return Row(
        *(link, method, window, len(own)),
        score=ratio([one.score for one in own], each),
        aal=ratio(tokens, rounds),
        rounds=ratio(rounds, each),
        latency_s=ratio(seconds, each),
        tokens_per_s=ratio(tokens, seconds),
        passed=sum(one.overrides for one in own) / judged if judged else 0.0,
    )

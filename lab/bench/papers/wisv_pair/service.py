"""Measures a real cluster over emulated links, one request at a time."""

from collections.abc import Sequence

from tqdm import tqdm

from lab.bench.harness.running import RunningService
from lab.bench.load.client import open_client
from lab.bench.papers.wisv_pair.figures import Answer
from lab.bench.papers.wisv_pair.plan import FULL, LINKS, STRICT, Method, Turn, turns
from lab.training.tasks.task import Task
from outrider.config.schema import Config

_TIMEOUT_S = 1800.0
_SETTLING_TOKENS = 48


async def measured(
    url: str,
    config: Config,
    links: Sequence[str],
    tasks: Sequence[Task],
    few: int,
    methods: Sequence[Method],
    windows: Sequence[int],
    most_tokens: int,
) -> list[Answer]:
    """Ask on one link after another; see ``plan.turns``.

    Args:
        url: of the service.
        config: it was started with.
        links: of ``LINKS``.
        tasks: to answer.
        few: number of tasks for slow methods.
        methods: to compare.
        windows: for those whose window is not free.
        most_tokens: length limit of an answer.
    """
    answers: list[Answer] = []
    async with open_client(url, _TIMEOUT_S) as client:
        service = RunningService(client, config)
        for link in links:
            await service.emulate(LINKS[link])
            for method in (STRICT, FULL):  # the service measures the link and the acceptance of drafts
                await _asked(service, Turn(link, tasks[0], method, 4), _SETTLING_TOKENS)
            planned = list(turns(link, tasks, few, methods, windows))
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

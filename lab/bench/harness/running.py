"""A service that this process started and may change and inspect: one request at a time."""

import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import ray
from ray import serve

from actors.messages import DrafterId
from cluster.local import APP_NAME
from lab.bench.load.client import ServiceUnusableError
from outrider.config.schema import Config
from outrider.link.profiles import LinkProfile
from outrider.rounds.timing import RoundTiming


@dataclass(frozen=True, slots=True)
class Answered:
    text: str
    tokens: int
    elapsed_s: float  # from the request to the end of the answer
    usage: Mapping[str, Any]  # ``usage.outrider``
    timings: tuple[RoundTiming, ...]


class RunningService:
    def __init__(self, client: httpx.AsyncClient, config: Config) -> None:
        """``client`` has the service's URL as its base."""
        self._client, self._config = client, config
        self._coordinator: Any = serve.get_deployment_handle("Coordinator", APP_NAME)
        self._drafters: list[Any] = [
            ray.get_actor(DrafterId(group.name, index).actor_name, namespace=config.cluster.namespace)
            for group in config.drafters
            for index in range(group.count)
        ]

    async def emulate(self, link: LinkProfile | None) -> None:
        for drafter in self._drafters:
            changed: Awaitable[None] = drafter.emulate_link.remote(link)
            await changed

    async def ask(self, prompt: str, options: Mapping[str, object], **parameters: object) -> Answered:
        """Request one response; ``options`` are the request's ``outrider``, ``parameters`` further fields of its body.

        Raises:
            ServiceUnusableError: it is refused.
        """
        await self._timings()  # drops timings from before
        began_at_s = time.perf_counter()
        said = await answered(self._client, self._config.model.public_name, prompt, options, **parameters)
        elapsed_s = time.perf_counter() - began_at_s
        return Answered(
            text=said["choices"][0]["message"]["content"],
            tokens=said["usage"]["completion_tokens"],
            elapsed_s=elapsed_s,
            usage=said["usage"]["outrider"],
            timings=tuple(await self._timings()),
        )

    async def _timings(self) -> list[RoundTiming]:
        timings: list[RoundTiming] = await self._coordinator.recent_timings.remote()
        return timings


async def answered(
    client: httpx.AsyncClient, model: str, prompt: str, options: Mapping[str, object], **parameters: object
) -> dict[str, Any]:
    """The body of one chat completion; arguments and errors as in ``RunningService.ask``."""
    answer = await client.post(
        "/v1/chat/completions",
        json={
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            **({"temperature": 1.0, "top_p": 1.0} | parameters),  # independent of the service's defaults
            "outrider": options,
        },
    )
    if not answer.is_success:
        raise ServiceUnusableError(f"needs an answer by {options}, found {answer.text[:500]}; see its log")
    return dict(answer.json())

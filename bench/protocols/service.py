"""Asks a running service, one request at a time, and reads what each round of the answer took."""

import time
from collections.abc import Awaitable
from typing import Any

import httpx
import ray
from ray import serve

from actors.messages import DrafterId
from bench.load.client import ServiceUnusableError
from bench.protocols.plan import Cell, Turn
from bench.protocols.rounds import Response, at_work, parse_choices
from cluster.local import APP_NAME
from outrider.config.schema import Config
from outrider.link.profiles import LinkProfile
from outrider.rounds.timing import RoundTiming


class MeasuredService:
    """The service that this process has started."""

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
        """Put this link between every drafter and the coordinator."""
        for drafter in self._drafters:
            changed: Awaitable[None] = drafter.emulate_link.remote(link)
            await changed

    async def ask(self, cell: Cell, turn: Turn, prompt: str, tokens: int, options: dict[str, object]) -> Response:
        """One response of exactly ``tokens`` tokens; a refused or incomplete one is a ``ServiceUnusableError``."""
        await self._timings()  # of whatever was before
        began_at_s = time.perf_counter()
        answer = await self._client.post(
            "/v1/chat/completions",
            json={
                "model": self._config.model.public_name,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens,
                "temperature": cell.temperature,
                "ignore_eos": True,
                "outrider": {**options, "explain": True},
            },
        )
        elapsed_s = time.perf_counter() - began_at_s
        if not answer.is_success or answer.json()["usage"]["completion_tokens"] != tokens:
            raise ServiceUnusableError(f"needs {tokens} tokens by {options}, found {answer.text[:500]}; see its log")
        timings, usage = await self._timings(), answer.json()["usage"]["outrider"]
        rounds, choices = at_work(turn.method, timings, parse_choices(usage.get("choices", ())))
        return Response(
            cell=cell,
            method=turn.method,
            repeat=turn.repeat,
            prompt=turn.prompt,
            elapsed_s=elapsed_s,
            rounds=rounds,
            row_requests=max(int(usage["rounds"]) - len(timings), 0),
            timed=(sum(t.total_s for t in timings), sum(t.up_bits for t in timings), sum(t.down_bits for t in timings)),
            sent=(int(usage["payload_bits"]["up"]), int(usage["payload_bits"]["down"])),
            choices=choices,
        )

    async def _timings(self) -> list[RoundTiming]:
        timings: list[RoundTiming] = await self._coordinator.recent_timings.remote()
        return timings

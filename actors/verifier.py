"""The verifier actor: a target model on a GPU server, one engine call per batch.

A plain class; the coordinator wraps it with ``ray.remote`` inside its own placement group. Calls are
answered in order of arrival by one engine thread, so a batch sent while another runs starts the moment that one ends.
"""

import asyncio
import logging
import os
import time
from dataclasses import replace

from actors.messages import ModelCard, VerifyCall, VerifyReply
from outrider.assembly.verifiers import build_verifier
from outrider.contracts.errors import OutriderError, VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, Outcome, VerifierEngine
from outrider.engines.kinds import VerifierSpec
from outrider.events import event, write_events

log = logging.getLogger(__name__)


class VerifierActor:
    """Holds a target model and the KV of the generations its coordinator sends."""

    def __init__(self, spec: VerifierSpec) -> None:
        # Whoever only creates this actor need not wait for torch to load.
        from actors.engine_thread import engine_thread, model_card  # noqa: PLC0415

        write_events()
        self._thread = engine_thread(spec.threads)
        built = self._thread.submit(build_verifier, spec).result()
        self._engine = built.engine
        self._card = replace(model_card(built.facts, built.engine.max_context_tokens), machine=built.machine)
        self._free_since_s = time.monotonic()

    async def card(self) -> ModelCard:
        """Who this verifier is; also the liveness probe, answered while a batch runs."""
        return self._card

    async def verify(self, call: VerifyCall) -> VerifyReply:
        """Apply one call: forget, open, verify."""
        arrived_at_s = time.monotonic()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._apply, call, arrived_at_s)

    async def usage(self) -> KvUsage:
        """Its engine's memory, once the calls before this one are done."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.usage)

    def _apply(self, call: VerifyCall, arrived_at_s: float) -> VerifyReply:
        from torch import AcceleratorError  # noqa: PLC0415 (as above)

        try:
            return self._applied(call, arrived_at_s)
        except (VerifierLostError, AcceleratorError) as error:
            # A process of the engine is gone, or the GPU's state: nothing can be computed again before Ray starts anew.
            event(log, "verifier_engine_lost", logging.ERROR, reason=str(error))
            os._exit(1)

    def _applied(self, call: VerifyCall, arrived_at_s: float) -> VerifyReply:
        started_at_s = time.monotonic()
        refused, outcomes = apply_call(self._engine, call)
        ended_at_s = time.monotonic()
        idle_s = max(0.0, arrived_at_s - self._free_since_s)
        self._free_since_s = ended_at_s
        return VerifyReply(
            outcomes=outcomes,
            refused_openings=refused,
            engine_s=ended_at_s - started_at_s,
            waited_s=started_at_s - arrived_at_s,
            idle_s=idle_s,
            usage=self._engine.usage(),
            computed=self._engine.last_pass(),
        )


def apply_call(engine: VerifierEngine, call: VerifyCall) -> tuple[dict[GenerationId, str], tuple[Outcome, ...]]:
    """Forget, open, verify; returns why generations were refused, and the outcomes."""
    for closing in call.closings:
        engine.close(closing.generation, keep_cache=closing.keep_cache)
    refused: dict[GenerationId, str] = {}
    for opening in call.openings:
        try:
            engine.open(opening)
        except OutriderError as error:
            refused[opening.generation] = str(error)
    return refused, tuple(engine.verify(call.blocks, call.resolutions))

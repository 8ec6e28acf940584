"""Coordinators in this process that are lost as planned, and a client's response that goes on from one to the next."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from outrider.contracts.requests import GenerationChunk, GenerationRequest
from serve_app.api.resumption import resumed
from tests.unit.serve_app.api.in_memory_service import Service, drafter
from tests.unit.serve_app.coordination.in_memory import Gate


class Coordinators:
    """Each attempt is made by a coordinator of its own, which is lost as planned."""

    def __init__(self, *losses: tuple[int, Exception]) -> None:
        """``losses``: of each attempt in turn, after how many chunks and with which error; those after them go well."""
        self.losses = losses
        self.records: list[GenerationRequest] = []
        self.services: list[Service] = []
        self.left: list[str] = []  # generations whose stream was closed
        self.pauses_s: list[float] = []
        self.resumed = 0
        self.pause_gate: Gate | None = None
        self.gates: dict[int, Gate] = {}  # by number of the verifier call, of every attempt

    async def attempt(self, record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Go on from a record."""
        number = len(self.records)
        self.records.append(record)
        service = Service(drafter())
        service.verifier.gates = self.gates
        self.services.append(service)
        left, error = self.losses[number] if number < len(self.losses) else (1000, RuntimeError("never"))
        try:
            async with aclosing(service.chunks(record)) as chunks:
                async for chunk in chunks:
                    if left == 0:
                        break
                    left -= 1
                    yield chunk
                if left == 0:
                    raise error
        finally:
            self.left.append(record.generation)
            await service.idle()

    async def pause(self, seconds: float) -> None:
        """Note it."""
        self.pauses_s.append(seconds)
        await asyncio.sleep(0)
        if self.pause_gate is not None:
            await self.pause_gate.wait()

    def response(self, request: GenerationRequest, max_failures: int = 8) -> AsyncGenerator[GenerationChunk, None]:
        """What the client gets."""
        return resumed(request, self.attempt, max_failures=max_failures, on_resume=self.note_resumed, pause=self.pause)

    def note_resumed(self) -> None:
        """Count."""
        self.resumed += 1

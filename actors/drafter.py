"""The drafter actor: a draft model on an edge device, serving several generations in one batched engine.

A plain class; the fleet wraps it with ``ray.remote`` and its group's resources. Requests that arrive while the engine
is busy join its batch between two tokens.
"""

import asyncio
import time
import uuid
from collections.abc import Callable

from actors.engine_thread import engine_thread
from actors.messages import DraftReply, ModelCard
from outrider.engines.base import DraftAnswer, DrafterEngine, DraftRequest, OpenGeneration
from outrider.engines.torch_drafter import TorchDrafter
from outrider.engines.torch_verifier import EngineLimits
from outrider.models.registry import load_drafter
from outrider.types import GenerationId

_Order = tuple[Callable[[], None], asyncio.Future[DraftAnswer] | asyncio.Future[None]]


class DrafterActor:
    """Holds a draft model and the KV of the generations leased to it."""

    def __init__(self, drafter: str, target: str, dtype: str, device: str, threads: int, limits: EngineLimits) -> None:
        """Load the draft model; what it shares with the target comes from the target's files."""
        self._thread = engine_thread(threads)
        loaded = self._thread.submit(load_drafter, drafter, target, dtype=dtype, device=device).result()
        engine = TorchDrafter(loaded, limits)
        self._engine: DrafterEngine = engine
        self._card = ModelCard(
            name=loaded.name,
            model_hash=loaded.model_hash,
            token_map_hash=loaded.token_map_hash,
            vocab_size=loaded.vocab_size,
            max_context_tokens=engine.max_context_tokens,
            incarnation=uuid.uuid4().hex,
        )
        self._orders: list[_Order] = []
        self._waiting: dict[tuple[GenerationId, int], asyncio.Future[DraftAnswer]] = {}
        self._driver: asyncio.Task[None] | None = None

    async def card(self) -> ModelCard:
        """Who this drafter is; also the liveness probe, answered while the engine runs."""
        return self._card

    async def open(self, request: OpenGeneration) -> None:
        """Hold a generation.

        Raises:
            ContextTooLongError: it can never fit this drafter.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order(lambda: self._engine.open(request), done)
        await done

    async def draft(self, request: DraftRequest) -> DraftReply:
        """Draft one block (window 0: bring the KV up to date). A repeated request takes over from the first."""
        arrived_at_s = time.monotonic()
        key = (request.generation, request.round)
        answer: asyncio.Future[DraftAnswer] = asyncio.get_running_loop().create_future()
        replaced = self._waiting.pop(key, None)
        if replaced is not None:
            replaced.cancel()
        self._waiting[key] = answer
        self._order(lambda: self._engine.submit(request), answer)
        try:
            return DraftReply(await answer, time.monotonic() - arrived_at_s)
        finally:
            if self._waiting.get(key) is answer:
                del self._waiting[key]

    async def close(self, generation: GenerationId) -> None:
        """Forget a generation."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order(lambda: self._engine.close(generation), done)
        await done

    def _order(self, act: Callable[[], None], future: asyncio.Future[DraftAnswer] | asyncio.Future[None]) -> None:
        self._orders.append((act, future))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive())

    async def _drive(self) -> None:
        """Hand orders to the engine thread and answers to their callers until there is neither."""
        loop = asyncio.get_running_loop()
        while self._orders or self._engine.busy:
            orders, self._orders = self._orders, []
            errors, answers = await loop.run_in_executor(self._thread, self._work, orders)
            for (_, future), error in zip(orders, errors, strict=True):
                if future.done():
                    continue
                if error is not None:
                    future.set_exception(error)
                elif not any(future is waiting for waiting in self._waiting.values()):
                    future.set_result(None)  # type: ignore[arg-type]  # an open or a close: nothing more to say
            for answer in answers:
                waiting = self._waiting.get((answer.generation, answer.round))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _work(self, orders: list[_Order]) -> tuple[list[Exception | None], list[DraftAnswer]]:
        """On the engine thread: apply orders, then step until somebody has an answer or new orders are there."""
        errors: list[Exception | None] = []
        for act, _ in orders:
            try:
                act()
            except Exception as error:  # noqa: BLE001 (handed to the caller whose order it was)
                errors.append(error)
            else:
                errors.append(None)
        answers: list[DraftAnswer] = []
        while self._engine.busy and not answers:
            answers = self._engine.step()
            if self._orders or orders:
                break
        return errors, answers

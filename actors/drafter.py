"""The drafter actor: a draft model on an edge device, serving several generations in one batched engine.

A plain class; the fleet wraps it with ``ray.remote`` and its group's resources. Requests that arrive while the engine
is busy join its batch between two tokens.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from actors.messages import DraftReply, ModelCard
from outrider.engines.base import DraftAnswer, DrafterEngine, DraftRequest, OpenGeneration
from outrider.engines.limits import EngineLimits
from outrider.errors import OutriderError
from outrider.events import write_events
from outrider.types import GenerationId

_Order = tuple[Callable[[], None], asyncio.Future[None]]


class DrafterActor:
    """Holds a draft model and the KV of the generations leased to it."""

    def __init__(self, drafter: str, target: str, dtype: str, device: str, threads: int, limits: EngineLimits) -> None:
        """Load the draft model; what it shares with the target comes from the target's files."""
        # The fleet, which only creates this actor, need not wait for torch to load.
        from actors.engine_thread import engine_thread, model_card  # noqa: PLC0415
        from outrider.engines.torch_drafter import TorchDrafter  # noqa: PLC0415
        from outrider.models.registry import load_drafter  # noqa: PLC0415

        write_events()
        self._thread = engine_thread(threads)
        loaded = self._thread.submit(load_drafter, drafter, target, dtype=dtype, device=device).result()
        engine = TorchDrafter(loaded, limits)
        self._engine: DrafterEngine = engine
        self._card = model_card(loaded, engine.max_context_tokens)
        self._held: set[GenerationId] = set()
        self._orders: list[_Order] = []
        self._waiting: dict[tuple[GenerationId, int], asyncio.Future[DraftAnswer]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._fault: Exception | None = None

    async def card(self) -> ModelCard:
        """Who this drafter is; also the liveness probe, answered while the engine runs.

        Raises:
            Exception: whatever broke the engine, if something did; the actor is of no further use.
        """
        if self._fault is not None:
            raise self._fault
        return self._card

    async def open(self, request: OpenGeneration) -> None:
        """Hold a generation.

        Raises:
            ContextTooLongError: it can never fit this drafter.
        """
        self._held.add(request.generation)
        try:
            await self._apply(partial(self._engine.open, request))
        except OutriderError:
            self._held.discard(request.generation)
            raise

    async def draft(self, request: DraftRequest) -> DraftReply:
        """Draft one block (window 0: bring the KV up to date). A repeated request takes over from the first."""
        arrived_at_s = time.monotonic()
        key = (request.generation, request.round)
        answer: asyncio.Future[DraftAnswer] = asyncio.get_running_loop().create_future()
        if key in self._waiting:
            self._waiting[key].cancel()
        self._waiting[key] = answer
        try:
            await self._apply(partial(self._engine.submit, request))
            return DraftReply(await answer, time.monotonic() - arrived_at_s)
        finally:
            if self._waiting.get(key) is answer:
                del self._waiting[key]

    async def held(self) -> tuple[GenerationId, ...]:
        """The generations it holds."""
        return tuple(self._held)

    async def close(self, generation: GenerationId) -> None:
        """Forget a generation; a block it still waits for is cancelled."""
        self._held.discard(generation)
        for (name, _), answer in self._waiting.items():
            if name == generation:
                answer.cancel()
        await self._apply(partial(self._engine.close, generation))

    async def _apply(self, act: Callable[[], None]) -> None:
        """Have the engine thread do something between two steps."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._orders.append((act, done))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        await done

    async def _drive(self) -> None:
        """Hand orders to the engine thread and answers to their callers until there is neither."""
        loop = asyncio.get_running_loop()
        while self._orders or self._engine.busy:
            orders, self._orders = self._orders, []
            try:
                errors, answers = await loop.run_in_executor(self._thread, self._work, [act for act, _ in orders])
            except Exception as error:  # noqa: BLE001 (a broken engine is reported to everybody who waits for it)
                self._fault = error
                self._fail_all([done for _, done in orders], error)
                return
            for (_, done), order_error in zip(orders, errors, strict=True):
                if done.done():
                    continue
                if order_error is None:
                    done.set_result(None)
                else:
                    done.set_exception(order_error)
            for answer in answers:
                waiting = self._waiting.get((answer.generation, answer.round))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _fail_all(self, orders: list[asyncio.Future[None]], error: Exception) -> None:
        futures: list[asyncio.Future[Any]] = [*orders, *self._waiting.values()]
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def _work(self, acts: list[Callable[[], None]]) -> tuple[list[Exception | None], list[DraftAnswer]]:
        """On the engine thread: apply orders, then step until somebody has an answer or new orders are there."""
        errors = [_attempt(act) for act in acts]
        answers: list[DraftAnswer] = []
        while self._engine.busy and not answers:
            answers = self._engine.step()
            if acts or self._orders:
                break
        return errors, answers


def _attempt(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 (handed to the caller whose order it was)
        return error
    return None

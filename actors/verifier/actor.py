"""Verifier actor: holds the target model and steps its engine as long as anything is under way.

It is a plain class; the coordinator wraps it with ``ray.remote`` inside its own placement group. A call joins the next
step, and the outcomes of each step leave at once over one stream, so neither side waits for the other.

Two threads share the state: the actor's event loop takes in calls and sends replies, the engine's thread steps.
``_reorder_lock`` guards the calls and ``_stepping`` between them; replies cross by ``call_soon_threadsafe``.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Timer
from traceback import format_exception

import ray

from actors.local_streams import Stream, listen, socket_file
from actors.messages import ModelCard, Refusal, StepReply, VerifyCall
from actors.start import started, starting
from actors.verifier.call_reorder_buffer import CallReorderBuffer
from actors.verifier.load_turn import load_turn
from actors.verifier.step_stream import serve_steps
from outrider.assembly.verifiers import build_verifier
from outrider.contracts.errors import ContextTooLongError, VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, VerifierEngine
from outrider.engines.engine_beat import EngineBeat
from outrider.engines.kinds import VerifierSpec
from outrider.engines.load_phases import load_phase
from outrider.engines.verifier.stepper import Stepper
from outrider.events import event, write_events
from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LookupHistory

log = logging.getLogger(__name__)

_LAST_WORDS_S = 0.5  # for the last reply to leave before the process ends
_MOST_REASON_CHARS = 300
_TURN_S = 15.0  # longest wait for another verifier's load: about twice what a small model takes, process and all
_TURN_KEPT_S = 2.0  # time for responses to continue here before another verifier loads


class VerifierActor:
    """Holds a target model and the KV of the generations its coordinator sends."""

    def __init__(self, spec: VerifierSpec, lookup_store_tokens: int = 0, emulated_reload_s: float = 0.0) -> None:
        """Build the engine; keep up to ``lookup_store_tokens`` of earlier responses for prompt lookup.

        A process that Ray has restarted sleeps ``emulated_reload_s`` first, as if its model were large.
        """
        starting()
        write_events()
        shares_cores = spec.engine == "torch" and spec.device == "cpu"
        with ExitStack() as turn:
            has_turn = False
            if (emulated_reload_s or shares_cores) and (
                context := ray.get_runtime_context()
            ).was_current_actor_reconstructed:
                time.sleep(emulated_reload_s)
                if shares_cores:
                    session = Path(context.get_temp_dir()) / context.get_session_name()
                    with load_phase("turn"):
                        has_turn = turn.enter_context(load_turn(session, _TURN_S))
            with load_phase("import"):  # here, so that a process that only creates this actor does not import torch
                from actors.engine_thread import card_of, engine_thread  # noqa: PLC0415
            thread = engine_thread(spec.threads, spec.device)
            built = thread.submit(build_verifier, spec).result()
            if has_turn:
                kept = Timer(_TURN_KEPT_S, turn.pop_all().close)
                kept.daemon = True
                kept.start()
        self._card = replace(card_of(ModelCard, built.facts, built.engine), machine=built.machine)
        self._begin(thread, built.engine, LookupHistory(earlier=EarlierTexts(lookup_store_tokens)))
        started()

    def _begin(self, thread: Executor, engine: VerifierEngine, experience: LookupHistory | None = None) -> None:
        """Set up stepping of ``engine``, which only ``thread`` may use from now on."""
        self._thread, self._steps = thread, SteppedEngine(engine, experience, self._step_soon)
        self._beat = EngineBeat()
        self._reorder_buffer = CallReorderBuffer()
        self._reorder_lock = threading.Lock()
        self._stepping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._replies: asyncio.Queue[StepReply] = asyncio.Queue()
        self._heard = False
        self._listening: asyncio.Server | None = None

    async def card(self) -> ModelCard:
        """Return the model's card. This is also the liveness probe; the event loop answers it while a step runs."""
        return self._card

    async def listen(self) -> None:
        """Listen for a coordinator on this node, once; it has the replies of steps from then on."""
        if self._listening is None:
            self._listening = await listen(socket_file(ray.get_runtime_context().get_actor_id() or ""), self._stream)

    async def _stream(self, stream: Stream) -> None:
        await serve_steps(stream, self._take_in, self._newest_replies())

    async def busy_s(self) -> float:
        """Return the seconds that the engine's thread has been in its present step; 0 between steps.

        The value of an engine that hangs grows without end, although this event loop still answers.
        """
        return self._beat.busy_s

    async def give(self, call: VerifyCall) -> None:
        """Take in a call; ``steps`` yields its outcomes."""
        self._take_in(call)

    def _take_in(self, call: VerifyCall) -> None:
        self._loop = asyncio.get_running_loop()
        with self._reorder_lock:
            self._reorder_buffer.put(call)
        self._step_soon()

    async def steps(self) -> AsyncGenerator[StepReply]:
        """Yield the reply of each step, for ever. Only the newest caller receives replies, those from its call on."""
        replies = self._newest_replies()
        while True:
            yield await replies.get()

    def _newest_replies(self) -> "asyncio.Queue[StepReply]":
        if self._heard:  # the first caller also receives what was stepped before it came
            self._replies = asyncio.Queue()
        self._heard = True
        return self._replies

    async def usage(self) -> KvUsage:
        return self._steps.usage

    def _send(self, reply: StepReply) -> None:
        self._replies.put_nowait(reply)

    def _step_soon(self) -> None:
        """Start stepping on the engine's thread unless it steps already. Safe to call from any thread."""
        with self._reorder_lock:
            begin, self._stepping = not self._stepping, True
        if begin:
            self._thread.submit(self._step_on)

    def _step_on(self) -> None:
        """Step until nothing is under way. Runs on the engine's thread."""
        try:
            while True:
                with self._reorder_lock:  # one section: else a call put between the test and the flag would never start
                    calls = self._reorder_buffer.take()
                    if not calls and self._steps.idle:
                        self._stepping = False
                        return
                with self._beat.working():
                    reply = self._steps.step(calls)
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._send, reply)
        except VerifierLostError as error:
            # A process of the engine or the GPU's state is lost: only a new process of this actor can compute again.
            event(log, "verifier_engine_lost", logging.ERROR, reason=str(error))
            self._end()
        except BaseException:  # an error on this thread reaches no caller: end, so that ``steps`` breaks for its reader
            log.exception("verifier_step_failed")
            self._end()

    def _end(self) -> None:
        """Send who was in the pass, if possible, and end the process; an exception would end this thread only."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._send, self._steps.last_words())
            time.sleep(_LAST_WORDS_S)
        os._exit(1)


class SteppedEngine:
    """Applies calls to an engine, steps it and measures the steps. Used on the engine's thread; ``usage`` on any."""

    def __init__(
        self,
        engine: VerifierEngine,
        experience: LookupHistory | None = None,
        on_opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over an engine; ``on_opened`` as in ``Stepper``."""
        self._engine, self._stepper = engine, Stepper(engine, experience, on_opened)
        self._session = 0
        self._idle_since_s: float | None = time.monotonic()  # None: the last step left something to do
        self.usage = engine.usage()

    @property
    def idle(self) -> bool:
        return self._stepper.idle

    def step(self, calls: Iterable[VerifyCall]) -> StepReply:
        started_at_s = time.monotonic()
        idle_s = 0.0 if self._idle_since_s is None else started_at_s - self._idle_since_s
        refused = dict[GenerationId, Refusal]()
        for call in calls:
            self._session = call.session
            refused |= take_in(self._stepper, call, started_at_s)
        taken_in_at_s = time.monotonic()
        outcomes = self._stepper.step()
        ended_at_s, self.usage = time.monotonic(), self._engine.usage()
        engine_s, self._idle_since_s = ended_at_s - taken_in_at_s, ended_at_s if self.idle else None
        return StepReply(
            tuple(outcomes),
            refused,
            engine_s,
            idle_s,
            self.usage,
            self._stepper.last_pass(),
            session=self._session,
            evicted=self._stepper.evicted(),
            faults=self._stepper.taken_faults(),
            opening_s=taken_in_at_s - started_at_s,
        )

    def last_words(self) -> StepReply:
        """Return a reply that names the generations of the pass in which the engine was lost, and earlier faults."""
        suspects, faults = self._stepper.in_pass, self._stepper.taken_faults()
        return StepReply((), {}, 0.0, 0.0, self.usage, (), session=self._session, faults=faults, suspects=suspects)


def take_in(stepper: Stepper, call: VerifyCall, now_s: float) -> dict[GenerationId, Refusal]:
    """Apply one call to the stepper; return refusals of openings. ``now_s`` is on this machine's clock.

    The first call of a session closes all generations: the coordinator has lost track of them and opens them again.
    """
    if call.number == 0:
        stepper.close_all()
    for closing in call.closings:
        stepper.close(closing.generation, keep_cache=closing.keep_cache)
    refused: dict[GenerationId, Refusal] = {}
    for opening in call.openings:
        try:
            stepper.open(opening)
        except VerifierLostError:
            raise
        except ContextTooLongError as error:
            refused[opening.generation] = Refusal(str(error), too_long=True)
        except Exception as error:  # noqa: BLE001 (this opening alone fails; the others go on)
            named = {"generation": opening.generation, "trace_id": opening.trace_id}
            event(log, "opening_failed", logging.ERROR, **named, traceback="".join(format_exception(error)))
            refused[opening.generation] = Refusal(f"{type(error).__name__}: {error}"[:_MOST_REASON_CHARS])
    stepper.give(call.blocks, call.resolutions)
    for generation, until_round in call.grants:
        stepper.grant_rounds(generation, until_round)
    stepper.prefill_in(call.prefill_order)
    for generation, lookup in call.lookups:
        stepper.look_up(generation, lookup)
    for generation, within_s in call.dues:
        stepper.due(generation, now_s + within_s)
    return refused

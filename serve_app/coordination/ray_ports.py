"""Makes all of a coordinator's Ray calls, to its verifier and to the fleet, with deadlines and typed errors."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.coordinator.drafter_streams import DrafterStreams
from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.coordinator.transport import DrafterTransport, RayDrafterTransport
from actors.gateway_link import DialledHandle
from actors.head_actors import CALLS_KEPT
from actors.heartbeats import FleetNews
from actors.local_streams import connect, socket_file
from actors.messages import CoordinatorReport, DrafterId, FleetSettings, ModelCard, StepReply, VerifyCall
from actors.plain_handle import address_of
from actors.ray_errors import last_line
from actors.ray_internals.core import actor_id_of
from actors.tcp_counts import connections
from actors.verifier.actor import VerifierActor
from actors.verifier.step_stream import StepStream
from actors.waiting import Named, within
from outrider.assembly.verifiers import process_variables
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage
from outrider.events import event
from serve_app.coordination.drafting.drafter_slots import DrafterSlots
from serve_app.coordination.drafting.link_services import DrafterPort
from serve_app.coordination.drafting.wire_meter import WireMeter
from serve_app.coordination.settings import VerifierSettings
from serve_app.fleet_gauges import application_fleet

_PROBE_DEADLINE_S = 2.0
_SILENT_PROBE_S = 0.5  # deadline of a probe to a verifier that has not sent a step for a while
_PROBE_PAUSE_S = 0.2
_RESTART_PAUSE_S = 5.0
_FLEET_DEADLINE_S = 5.0
_NOT_READY_SHARE = 3.0  # a verifier in one step for a third of its deadline is not ready; after all of it, it is killed

log = logging.getLogger(__name__)


class VerifierPort:
    """The coordinator's own verifier actor: created in its placement group, restarted by Ray when it dies."""

    def __init__(self, settings: VerifierSettings) -> None:
        """Create the actor in the second bundle of the replica's placement group."""
        group = ray.util.get_current_placement_group()
        placement = {} if group is None else {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, 1)}
        actor: Any = ray.remote(VerifierActor).options(
            num_cpus=settings.claims.num_cpus,
            num_gpus=settings.claims.num_gpus,
            resources=dict(settings.claims.resources),
            max_restarts=-1,
            enable_task_events=CALLS_KEPT,
            runtime_env={"env_vars": process_variables(settings.spec, Path(sys.prefix))},
            **placement,
        )
        # Keep a reference: Ray holds a large argument that it stores itself only until the actor is first created, but
        # a restart needs it again. A decision head makes the spec large.
        self._spec = ray.put(settings.spec)
        self._handle: ActorHandle[Any] = actor.remote(
            self._spec, settings.lookup_store_tokens, settings.emulated_reload_s
        )
        self._deadline_s, self._start_deadline_s = settings.deadline_s, settings.start_deadline_s
        self._silent_s: float | None = None  # seconds in one step for which it counts as lost; None: it is not silent
        self.is_up = False  # by the last answer or error
        self._coming_up: asyncio.Task[None] | None = None  # one task since the last loss, which all waiters share
        self._killing: asyncio.Task[None] | None = None  # kept, as asyncio itself keeps only weak references to tasks
        self._held: list[VerifyCall] = []  # given before it was known how they are sent
        self._give: Callable[[VerifyCall], None] = self._held.append

    def give(self, call: VerifyCall) -> None:
        """Send a call; do not wait. Ray may deliver calls out of order: the verifier orders them by their numbers."""
        self._give(call)

    def steps(self) -> AsyncGenerator[StepReply]:
        """Yield the reply of each step from now on; raise ``VerifierLostError`` once the actor dies or breaks."""
        self._held = []
        self._give = self._held.append
        return self._heard()

    def _give_by(self, give: Callable[[VerifyCall], None]) -> None:
        held, self._give = self._held, give
        for call in held:
            give(call)

    async def _heard(self) -> AsyncGenerator[StepReply]:
        if (stream := await connect(socket_file(actor_id_of(self._handle).hex()))) is not None:
            steps = StepStream(stream)
            self._give_by(steps.give)
            async for reply in steps.replies():
                yield reply
            self._mark_lost()
            raise VerifierLostError("the verifier is gone: its stream has ended")
        replies: Any = self._handle.steps.options(num_returns="streaming").remote()
        self._give_by(self._handle.give.remote)
        try:
            async for reply in replies:
                yield await reply
        except RayActorError as error:
            self._mark_lost()
            raise VerifierLostError(f"the verifier is gone: {type(error).__name__}") from error
        except RayError as error:
            event(log, "verifier_call_failed", logging.ERROR, reason=str(error))
            raise VerifierLostError(f"a verifier call failed: {type(error).__name__}") from error

    def kill_hung(self) -> None:
        """Kill a verifier that missed its deadline; Ray restarts it. In a thread, as ``ray.kill`` blocks."""
        event(log, "verifier_hung", logging.ERROR, deadline_s=self._deadline_s)
        self._killing = asyncio.create_task(asyncio.to_thread(ray.kill, self._handle, no_restart=False))

    async def is_silent(self, longest_s: float) -> bool:
        """Return whether the verifier does not answer, or has been in one step for longer than ``longest_s``.

        A silent verifier counts as lost until it makes steps again, and is killed once its deadline has passed. One
        that died is not silent: ``steps`` raises for it.
        """
        if await self._makes_progress(longest_s):
            return False
        event(log, "verifier_silent", logging.WARNING, longest_s=longest_s)
        self._mark_lost(silent_s=longest_s)
        return True

    async def _makes_progress(self, longest_s: float) -> bool:
        try:
            return await self._busy_s(_SILENT_PROBE_S) <= longest_s
        except TimeoutError:
            return False
        except RayError:
            return True

    async def _busy_s(self, deadline_s: float) -> float:
        """Return for how many seconds the engine has been in its present step."""
        busy_s: float = await within(deadline_s, self._handle.busy_s.remote())
        return busy_s

    async def card(self) -> ModelCard:
        """Return the verifier's card; wait while it loads its model or restarts.

        Raises:
            VerifierLostError: the verifier did not come up within its start deadline, or cannot be started.
        """
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + self._start_deadline_s
        while True:
            try:
                card: ModelCard = await within(give_up_at_s - loop.time(), self._handle.card.remote())
                await within(give_up_at_s - loop.time(), self._handle.listen.remote())
            except TimeoutError:
                raise VerifierLostError(
                    f"the verifier did not come up within {self._start_deadline_s:g} s; see its log"
                ) from None
            except ActorUnavailableError:
                self._mark_lost()
                await asyncio.sleep(_PROBE_PAUSE_S)
            except RayActorError as error:
                self._mark_lost()
                reason = last_line(error)
                event(log, "verifier_cannot_start", logging.ERROR, reason=reason)
                raise VerifierLostError(f"the verifier cannot be started: {reason}") from error
            else:
                self.is_up = True
                return card

    async def wait_until_up(self) -> None:
        if self.is_up or self._coming_up is None:
            await self.card()
            return
        try:  # shielded: the task serves all responses, and one of them may time out or be cancelled
            await within(self._start_deadline_s, asyncio.shield(self._coming_up))
        except TimeoutError:
            raise VerifierLostError(f"the verifier did not come up again within {self._start_deadline_s:g} s") from None

    def _mark_lost(self, silent_s: float | None = None) -> None:
        """Count the verifier as lost until it answers: responses that another coordinator can begin are not begun here.

        ``silent_s``: it may still live, and has been in one step for longer than this; None: its process is gone.
        """
        is_coming_up = self._coming_up is not None and not self._coming_up.done()
        if silent_s is None and (self._silent_s is not None or not is_coming_up):
            event(log, "verifier_lost", logging.WARNING)
        self._silent_s, self.is_up = silent_s, False
        if not is_coming_up:
            self._coming_up = asyncio.get_running_loop().create_task(self._await_up())

    async def _await_up(self) -> None:
        """Set ``is_up`` once the verifier answers, however long that takes."""
        await self._await_progress()
        if self.is_up:
            return
        while not self.is_up:
            try:
                await self.card()
            except VerifierLostError:  # ``card`` has logged it
                await asyncio.sleep(_RESTART_PAUSE_S)
        event(log, "verifier_back")

    async def _await_progress(self) -> None:
        """Probe a silent verifier until it makes steps again or has died; kill it once its deadline has passed."""
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + self._deadline_s
        while (longest_s := self._silent_s) is not None:
            if await self._makes_progress(longest_s):
                if self._silent_s is not None:  # None: it died during the probe, and ``_mark_lost`` has noted that
                    self.is_up, self._silent_s = True, None
                    event(log, "verifier_gets_on")
            elif loop.time() < give_up_at_s:
                await asyncio.sleep(_PROBE_PAUSE_S)
            else:
                self.kill_hung()
                self._silent_s = None

    async def usage(self) -> KvUsage:
        """Return the use of KV memory after the last step."""
        usage: KvUsage = await within(self._deadline_s, self._handle.usage.remote())
        return usage

    async def check_not_gone(self) -> None:
        """Raise if Ray will not restart the verifier; one that is busy, loading or restarting passes.

        A verifier that has been in one step for longer than its deadline is killed, even if no block waits for it.
        """
        try:
            if await self._busy_s(_PROBE_DEADLINE_S) > self._deadline_s:
                self.kill_hung()
        except ActorDiedError as error:
            raise VerifierLostError(f"the verifier is gone for good: {error}") from error
        except (TimeoutError, RayError):
            return

    async def alive(self) -> bool:
        """Return whether the verifier answers within 2 s and has been in its step for under a third of the deadline."""
        try:
            return await self._busy_s(_PROBE_DEADLINE_S) < self._deadline_s / _NOT_READY_SHARE
        except (TimeoutError, RayError):
            return False


class RayFleet:
    """The fleet actor (``FleetPort``). If it cannot be reached, generations go on without a drafter."""

    def __init__(self, owner: str, settings: FleetSettings, namespace: str) -> None:
        """Call nothing yet; the first ``beat`` finds the fleet or creates it. ``owner`` is the coordinator's id."""
        self._owner = owner
        self._settings = settings
        self._fleet = Named(partial(application_fleet, namespace), _FLEET_DEADLINE_S)
        self._places, self._gateways = DrafterSlots(owner), GatewayLinks()
        self.wire = WireMeter(address_of, connections)
        self._streams = DrafterStreams(self.wire.note_stream)

    @property
    def leases(self) -> int:
        """Number of generations that have leased a drafter, or have asked for one."""
        return self._places.in_use

    async def beat(self, report: CoordinatorReport) -> FleetNews | None:
        """Send a heartbeat and return the fleet's answer; None if there is none, for example while it restarts."""
        heartbeat = self._places.heartbeat(report, self._settings)
        try:
            fleet = await self._fleet.handle()
            news: FleetNews = await within(_FLEET_DEADLINE_S, fleet.beat.remote(heartbeat))
        except ActorDiedError:
            self._fleet.lost()
            return None
        except (TimeoutError, RayError):
            return None
        self._places.heard(news)
        return news

    async def lease(
        self, generation: GenerationId, exclude: frozenset[DrafterId], groups: frozenset[str] | None
    ) -> DrafterPort | None:
        if (fleet := self._fleet.known) is None:
            return None
        place = self._places.take(generation, exclude, groups)
        if place is None and self._places.begin_lease(generation, groups):
            try:
                place = await within(_FLEET_DEADLINE_S, fleet.lease.remote(generation, exclude, self._owner, groups))
            except (TimeoutError, RayError) as error:
                event(log, "lease_failed", logging.WARNING, generation=generation, reason=type(error).__name__)
            self._places.answered(generation, groups, place)
        if place is None:
            return None
        drafter, handle = place
        return DrafterPort(drafter, self._transport(drafter, handle))

    def _transport(self, drafter: DrafterId, handle: Any) -> DrafterTransport:
        if isinstance(handle, DialledHandle):  # its gateway counts what crosses the wire
            locate = partial(self._locate, drafter)
            return GatewayDrafterTransport(drafter.actor_name, handle, self._gateways, locate)
        self.wire.note_lease(drafter, handle)
        return RayDrafterTransport(drafter.actor_name, handle, self._streams.of(drafter, handle))

    async def _locate(self, drafter: DrafterId, handle: DialledHandle) -> DialledHandle | None:
        """Ask the fleet where a device is now; while it does not answer it is where it was."""
        if (fleet := self._fleet.known) is None:
            return handle
        try:
            found: DialledHandle | None = await within(_FLEET_DEADLINE_S, fleet.locate.remote(drafter))
        except (TimeoutError, RayError):
            return handle
        return found

    def release(self, generation: GenerationId) -> None:
        """End a lease without waiting; where the call is left out or fails, the next heartbeat ends the lease."""
        to_tell = self._places.release(generation)
        if to_tell and self._fleet.known is not None:
            self._fleet.known.release.remote(generation)

    def report_lost(self, drafter: DrafterId) -> None:
        self._places.lost(drafter)
        if self._fleet.known is not None:
            self._fleet.known.report_lost.remote(drafter)

    def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        self._places.lost(drafter)
        if self._fleet.known is not None:
            self._fleet.known.report_broken.remote(drafter, fault, generation)

"""Starts the configured drafters, health-checks suspects, replaces broken ones, and stops those not configured.

This is the policy; what can be done with a drafter is its hand's (``drafter_hands``). Drafters are detached named
actors: running ones are found again by name, and a drafter whose resources (``jetson``) are not in the cluster yet
becomes ready when they join. Devices that dial in are looked after from then on. One that fails the handshake, or whose
answers are invalid, is refused: it is stopped, and started again after a pause. A running drafter that is not
configured is stopped, whichever fleet started it.

Each drafter has one task at most that works on it (``_watchers``). Reports about a drafter whose task still runs are
dropped: the task ends by proving it healthy anyway.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from actors.fleet.dialled_device import GatewayCalls
from actors.fleet.dialled_devices import DialledDevices
from actors.fleet.drafter_actors import DrafterActors
from actors.fleet.drafter_hands import ActorHand, DeviceHand, DrafterHand
from actors.fleet.drafter_stopper import DrafterStopper
from actors.fleet.drafter_strikes import DrafterStandings
from actors.fleet.handshake import handshake_fault
from actors.fleet.held_generations import HeldGenerations
from actors.fleet.lease_table import LeaseTable
from actors.fleet.timeouts import FleetTimeouts
from actors.messages import DrafterId, FleetSettings
from actors.ray_errors import last_line
from actors.waiting import loop_now_s, within
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import GenerationId
from outrider.events import event
from outrider.models.head_file import HeadInfo

_MOST_REASON_CHARS = 400

log = logging.getLogger(__name__)


class _RunAs(NamedTuple):
    group: DrafterGroupConfig  # with count 0: another count is no reason to restart a drafter
    target: str
    model_hash: str | None


class DrafterCare:
    """Keeps drafters running and enters their states in the lease table. All methods run on the fleet's event loop."""

    def __init__(
        self,
        actors: DrafterActors,
        timeouts: FleetTimeouts,
        table: LeaseTable,
        gateway: Callable[[str], GatewayCalls],
    ) -> None:
        """Start without configured drafters; ``want`` sets them. ``gateway`` returns a gateway by its name."""
        self._actors, self._timeouts, self._table = actors, timeouts, table
        self.settings = FleetSettings((), "", "")
        self.dialled = DialledDevices(gateway, self._join, self.lost, self._dismiss, self._breached)
        self._actor_hand, self._device_hand = ActorHand(actors, timeouts), DeviceHand(self.dialled, timeouts)
        self._stopper = DrafterStopper(actors, lambda drafter: drafter in self._groups)
        self._groups: dict[DrafterId, _RunAs] = {}  # configured drafters
        self._handles: dict[DrafterId, ActorHandle[Any]] = {}  # of those that were ready
        self._model_hashes: dict[str, str] = {}  # by group: model of the last drafter that became ready
        self.held = HeldGenerations(table, timeouts, self._running, self._held_wrongly)
        self._asking: asyncio.Task[None] | None = None  # asks drafters what they hold
        self.standings = DrafterStandings()
        self._watchers: dict[DrafterId, asyncio.Task[None]] = {}

    def known_handle(self, drafter: DrafterId | None) -> "ActorHandle[Any] | None":
        return None if drafter is None else self._handles.get(drafter)

    async def handle(self, drafter: DrafterId) -> "ActorHandle[Any] | None":
        """Return a configured drafter's handle, whether or not this fleet has seen it ready; None if it was removed."""
        if drafter not in self._handles:  # a lease from before this fleet was restarted
            handle = await self._find(drafter)
            if handle is None or drafter not in self._groups:  # removed by ``want`` during the await
                return None
            self._handles.setdefault(drafter, handle)
        return self._handles[drafter]

    def want(self, settings: FleetSettings) -> None:
        """Start drafters that the settings name, stop those no longer named, restart those configured differently."""
        self.settings = settings
        self.dialled.want([group for group in settings.groups if group.dials_in])
        wanted = {
            DrafterId(group.name, i): self._run_as(group) for group in settings.groups for i in range(group.actors)
        }
        by_name = {group.name: group for group in settings.groups}
        wanted |= {one.drafter: self._run_as(by_name[one.drafter.group]) for one in self.dialled.all}
        changed: set[DrafterId] = set()
        for drafter, run_as in list(self._groups.items()):
            if wanted.get(drafter) != run_as:
                self._dismiss(drafter)
                self._model_hashes.pop(drafter.group, None)
                if drafter in wanted:
                    changed.add(drafter)
                else:
                    self._stopper.stop(drafter)
        for drafter, run_as in wanted.items():
            if drafter not in self._groups:
                self._enter(drafter, run_as, anew=drafter in changed and not run_as.group.dials_in)

    def _run_as(self, group: DrafterGroupConfig) -> _RunAs:
        return _RunAs(replace(group, count=0), self.settings.target, self.settings.models.get(group.name))

    def _join(self, drafter: DrafterId) -> None:
        """Look after a device that was let in."""
        self._enter(drafter, self._run_as(next(one for one in self.settings.groups if one.name == drafter.group)))

    def _enter(self, drafter: DrafterId, run_as: _RunAs, *, anew: bool = False) -> None:
        self._groups[drafter] = run_as
        self._table.add(drafter, run_as.group.max_generations)
        self._watch(drafter, self._bring_up(drafter, anew=anew))

    def _dismiss(self, drafter: DrafterId) -> None:
        """Look after a drafter no more; its leases end."""
        self._watchers.pop(drafter).cancel()
        self._table.remove(drafter)
        if self._groups.pop(drafter).group.dials_in:
            self.standings.forget(drafter)  # another device may come in its place
        self.held.forget(drafter)
        self._handles.pop(drafter, None)

    def lost(self, drafter: DrafterId) -> None:
        """Probe a drafter that did not answer, and lease it no more until it has drafted a token."""
        if self._idle(drafter):
            self._table.mark_suspect(drafter)
            self._watch(drafter, self._recover(drafter))

    def broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Test a drafter that sent an invalid answer or failed at a generation.

        It is leased no more until it has drafted a token. Once two generations report it, it is stopped and started
        again after a pause; one report may be the generation's own fault.
        """
        if self._idle(drafter):
            self._table.mark_suspect(drafter)
            strikes = self.standings.doubted(drafter, generation)
            self._watch(drafter, self._replace(drafter, fault) if strikes.broken else self._recover(drafter))

    def _running(self, drafter: DrafterId) -> "tuple[ActorHandle[Any], int] | None":
        handle, run_as = self._handles.get(drafter), self._groups.get(drafter)
        return None if handle is None or run_as is None else (handle, run_as.group.max_generations)

    def _held_wrongly(self, drafter: DrafterId, fault: str | None) -> None:
        """Probe a drafter that did not say what it holds; refuse one whose answer was invalid (``fault``)."""
        if fault is None:
            self.lost(drafter)
        elif self._idle(drafter):
            self._breached(drafter, fault)

    def _breached(self, drafter: DrafterId, fault: str) -> None:
        """Refuse a drafter that broke the contract, whatever is being done with it."""
        self._watchers[drafter].cancel()
        self._table.mark_suspect(drafter)
        self._watch(drafter, self._replace(drafter, fault))

    def look(self) -> None:
        """Stop drafters that are not configured and ask the others what they hold, each in a task of its own.

        A head that is away may hold up the first for long: a task that still runs is not started twice.
        """
        self._stopper.look()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self.held.ask_all())

    def _watch(self, drafter: DrafterId, work: Coroutine[Any, Any, None]) -> None:
        self._watchers[drafter] = task = asyncio.create_task(self._watched(drafter, work))
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it begins

    async def _watched(self, drafter: DrafterId, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work``; after an unexpected error, refuse the drafter and start it again, until that succeeds."""
        while True:
            try:
                await work
            except Exception as error:
                log.exception("watching_failed")
                self._take_out(drafter, fault := f"cannot be watched: {error!r:.200}")
            else:
                return
            await asyncio.sleep(self._timeouts.restart_poll_s)  # an error that comes at once must not make a busy loop
            work = self._replace(drafter, fault)

    def _idle(self, drafter: DrafterId) -> bool:
        """Return whether the drafter is configured and no task works on it."""
        return drafter in self._watchers and self._watchers[drafter].done()

    async def _bring_up(self, drafter: DrafterId, *, anew: bool = False) -> None:
        """Wait until the drafter is ready, however long its node takes to join or its process to restart.

        With ``anew`` it is stopped first, as it is configured differently.
        """
        if anew:
            await self._actors.stop(drafter)
        while True:
            handle = await self._find(drafter)
            try:
                card = await self._hand(drafter).card(handle)
            except ActorUnavailableError:
                await asyncio.sleep(self._timeouts.restart_poll_s)
            except TimeoutError as error:
                await self._refuse(drafter, f"cannot be started: {error}; it is restarted, see its log")
            except (RayError, OutriderError) as error:
                await self._refuse(drafter, f"cannot be started: {_said(error)}")
            else:
                expected_hash = self._expected_hash(drafter.group)
                fault = handshake_fault(card, self.settings.token_map_hash, expected_hash, self._head(drafter))
                if fault is None and not await self._proves_itself(drafter, handle):
                    continue
                if fault is None:
                    self._model_hashes[drafter.group] = card.model_hash
                    handle.messages = card.versions.messages
                    self._handles[drafter] = handle
                    self._table.mark_ready(drafter)
                    event(log, "drafter_ready", drafter=drafter.actor_name, model=card.model_hash)
                    return
                await self._refuse(drafter, fault)

    async def _proves_itself(self, drafter: DrafterId, handle: Any) -> bool:
        """Have the drafter draft a token through its engine; kill it if it hangs, refuse it if it fails.

        An answer from its event loop alone is no proof: that answers while the engine hangs.
        """
        try:
            await within(self._timeouts.proof_deadline_s, handle.prove.remote())
        except RayActorError:
            await asyncio.sleep(self._pause_s(drafter, self._timeouts.restart_poll_s))
        except TimeoutError:
            self._end_leases(drafter, "hung")
            await self._hand(drafter).restart(drafter, handle)
            await asyncio.sleep(self._pause_s(drafter, self._timeouts.restart_poll_s))
        except (RayError, OutriderError) as error:
            await self._refuse(drafter, f"cannot draft: {_said(error)}")
        else:
            return True
        return False

    def _pause_s(self, drafter: DrafterId, first_s: float) -> float:
        """Count a strike against the drafter, and return the pause until it is tried again, in seconds."""
        device = self.dialled.at(drafter)
        strikes = self.standings.struck(drafter, None if device is None else device.dial.identity, loop_now_s())
        return strikes.pause_s(first_s, self._timeouts.most_pause_s, random.random())  # noqa: S311 (nothing to guess)

    def _expected_hash(self, group: str) -> str | None:
        """Return the configured model hash, else that of the group's ready drafters; None if there is neither.

        The configuration demands a hash for groups that are not trusted.
        """
        of_group = self._model_hashes.get(group) if self._table.has_ready(group) else None
        return self.settings.models.get(group, of_group)

    def _head(self, drafter: DrafterId) -> HeadInfo | None:
        models = {group.name: group.model for group in self.settings.groups}
        return self.settings.heads.get(models.get(drafter.group, ""))

    async def _recover(self, drafter: DrafterId) -> None:
        """Probe a suspect, then bring it up. Ray restarts one that died; one that hangs or fails is killed first."""
        handle = await self._find(drafter)
        try:
            await self._hand(drafter).probe(handle)
        except RayActorError:
            self._end_leases(drafter, "died")
        except (TimeoutError, RayError, OutriderError):
            self._end_leases(drafter, "hung")
            await self._hand(drafter).restart(drafter, handle)
            await asyncio.sleep(self._pause_s(drafter, self._timeouts.restart_poll_s))
        await self._bring_up(drafter)

    async def _replace(self, drafter: DrafterId, fault: str) -> None:
        await self._refuse(drafter, fault)
        await self._bring_up(drafter)

    async def _refuse(self, drafter: DrafterId, reason: str) -> None:
        """Take a drafter out, stop it for good and pause; the caller then starts a new one from the configuration."""
        self._take_out(drafter, reason)
        pause_s = self._pause_s(drafter, self._timeouts.retry_s)
        await self._hand(drafter).refuse(drafter, reason, pause_s)
        await asyncio.sleep(pause_s)

    def _take_out(self, drafter: DrafterId, reason: str) -> None:
        reason = reason[:_MOST_REASON_CHARS]  # part of it comes from the device, which is not trusted
        orphans = self._table.mark_refused(drafter, reason)
        event(log, "drafter_refused", logging.ERROR, drafter=drafter.actor_name, reason=reason, leases=len(orphans))

    def _end_leases(self, drafter: DrafterId, cause: str) -> None:
        orphans = self._table.mark_lost(drafter)
        event(log, "drafter_lost", logging.WARNING, drafter=drafter.actor_name, cause=cause, leases=len(orphans))

    async def _find(self, drafter: DrafterId) -> Any:
        run_as = self._groups[drafter]
        return await self._hand(drafter).find(drafter, run_as.group, run_as.target)

    def _hand(self, drafter: DrafterId) -> DrafterHand:
        return self._device_hand if self._groups[drafter].group.dials_in else self._actor_hand


def _said(error: RayError | OutriderError) -> str:
    return last_line(error) if isinstance(error, RayError) else str(error)

"""Which devices have dialled in, with which gateway, and as which drafters: the newest process of each counts.

Gateways tell it by heartbeats, so a fleet that was restarted learns it anew, with the numbers that were given before.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from actors.fleet.device_bans import REPLACED_S, DeviceBans
from actors.fleet.device_places import DevicePlaces
from actors.fleet.dialled_device import DialledDevice, GatewayCalls, GatewayState
from actors.gateway_beats import (
    GRACE_S,
    DeviceAdmission,
    DeviceDial,
    DeviceRow,
    DeviceStage,
    GatewayBeat,
    GatewayNews,
)
from actors.messages import DialledStatus, DrafterId, GatewayStatus
from outrider.config.drafters import DrafterGroupConfig
from outrider.events import event
from outrider.wire.dialling import RefusalCode, Refused

_SILENT_S = 7.0  # of a gateway, until its devices count as away: longer than a heartbeat that is late by its deadline
_LOAD_S = 600.0  # for a device to load its drafter
_OTHERS = 8  # gateways that a device is told of

log = logging.getLogger(__name__)


class DialledDevices:
    """Also what ``DrafterCare`` does with a device in place of what it does with an actor: it waits, and turns away.

    ``joined`` is called for a device that is to be looked after, ``away`` for one that lost its connection, ``left``
    for one that is not coming back, and ``broke`` for one that broke the contract.
    """

    def __init__(
        self,
        gateway: Callable[[str], GatewayCalls],
        joined: Callable[[DrafterId], None],
        away: Callable[[DrafterId], None],
        left: Callable[[DrafterId], None],
        broke: Callable[[DrafterId, str], None],
    ) -> None:
        self._gateway, self._joined, self._away, self._left, self._broke = gateway, joined, away, left, broke
        self.groups: tuple[DrafterGroupConfig, ...] | None = None  # None: not known yet
        self.gateways: dict[str, GatewayState] = {}  # by actor name
        self._devices: dict[str, DialledDevice] = {}  # by name
        self._by_id: dict[DrafterId, DialledDevice] = {}
        self._bans, self._places = DeviceBans(), DevicePlaces()
        self._last_incarnation, self._first_given = 0, math.inf
        self.wanted = frozenset[str]()  # gateways
        self._first_beat_at_s = math.inf
        self._is_settled = False  # whether all of these have told this fleet, which may be a later one, who is there
        self.carried_bytes = Counter[tuple[str, str]]()  # by group and direction; never falls
        self.refused = Counter[str]()  # dials, by reason; likewise

    @property
    def all(self) -> Collection[DialledDevice]:
        return self._devices.values()

    def at(self, drafter: DrafterId) -> DialledDevice | None:
        return self._by_id.get(drafter)

    def knows_gone(self, drafter: DrafterId, now_s: float) -> bool:
        """Return whether one that is not here is gone: this fleet let it in, or its gateway had time to tell of it."""
        return drafter.incarnation >= self._first_given or now_s >= self._first_beat_at_s + GRACE_S

    def status_of(self, drafter: DrafterId) -> DialledStatus | None:
        if (device := self._by_id.get(drafter)) is None:
            return None
        gateway = device.gateway.name if self.gateways.get(device.gateway.name) is device.gateway else ""
        return DialledStatus(device.dial.device, gateway, 8 * device.sent_bytes, 8 * device.received_bytes)

    def gateways_status(self, faults: Mapping[str, str]) -> tuple[GatewayStatus, ...]:
        """Return all gateways, and those that do not run, with the reasons."""
        with_each = Counter(id(device.gateway) for device in self.all)
        running = (
            GatewayStatus(name, state.address, with_each[id(state)], state.connections, state.refused)
            for name, state in self.gateways.items()
        )
        others = (GatewayStatus(name, "", fault=fault) for name, fault in faults.items() if name not in self.gateways)
        return tuple(sorted((*running, *others), key=lambda one: one.name))

    def admit(self, gateway: str, dial: DeviceDial, now_s: float) -> DeviceAdmission | Refused:
        """Let a device in, as the drafter that it was or as another one, or say why not."""
        state, known = self.gateways.get(gateway), self._devices.get(dial.device)
        is_early = self.groups is None or (known is None and not self._settled(now_s))
        if state is None or not state.has_told_all or is_early:
            return Refused(RefusalCode.BUSY, "the fleet does not know yet who is here", 1)
        here = None if known is None else known.dial.process
        if (refused := self._bans.refusal(dial, here, now_s)) is not None:
            return refused
        if known is not None and known.dial.process == dial.process:
            if dial.dial <= known.dial.dial:
                return Refused(RefusalCode.TOO_MANY, "this process has dialled again since", 1)
            self._dialled_again(known, dial, state, now_s)
            return self._admission(known, state)
        if known is not None:
            event(log, "device_replaced", logging.WARNING, drafter=known.drafter.actor_name)
            known.end(self._bans.replaced(known.dial, now_s))
            self._remove(known)
        drafter = (
            known.drafter
            if known is not None and self._takes(known.drafter, dial)
            else self._places.find(self.groups or (), dial.identity)
        )
        if isinstance(drafter, Refused):
            return drafter
        self._last_incarnation = max(self._last_incarnation + 1, time.time_ns() // 1000)
        self._first_given = min(self._first_given, self._last_incarnation)
        device = DialledDevice(replace(drafter, incarnation=self._last_incarnation), dial, state)
        self._enter(device, now_s)
        device.away_at_s = now_s  # until its gateway says that it is there
        return self._admission(device, state)

    def hear(self, beat: GatewayBeat, now_s: float) -> GatewayNews:
        """Take in a gateway's heartbeat."""
        self._first_beat_at_s = min(self._first_beat_at_s, now_s)
        before = self.gateways.get(beat.gateway)
        calls = self._gateway(beat.gateway) if before is None else before.calls
        if before is None or before.session != beat.session:
            state = GatewayState(beat.gateway, calls, beat.place, beat.address, beat.session, now_s)
            self.gateways[beat.gateway] = state
            if before is not None:
                self._all_away(before, now_s)
            self._adopt(state)
            if not beat.everything:
                return GatewayNews(tell_all=True)
        else:
            state = before
        for reason, count in beat.refused.items():
            self.refused[reason] += max(0, count - state.refused.get(reason, 0))
        state.heard_at_s, state.refused, state.connections = now_s, beat.refused, beat.connections
        state.takes_devices = beat.takes_devices
        if self.groups is None:
            return GatewayNews(tell_all=True)
        state.has_told_all = state.has_told_all or beat.everything
        ended = [end for row in beat.rows for end in self._hear_row(row, state, now_s)]
        if beat.everything:
            here = {row.incarnation for row in beat.rows}
            for device in [one for one in self.all if one.gateway is state and one.incarnation not in here]:
                self._note_away(device, now_s)
        return GatewayNews(ended=tuple(ended))

    def want(self, groups: Sequence[DrafterGroupConfig]) -> None:
        self.groups = tuple(groups)
        by_name = {group.name: group for group in groups}
        for device in tuple(self.all):
            group = by_name.get(device.drafter.group)
            if group is None or not group.may_join(device.dial.identity):
                last = Refused(RefusalCode.GROUP_CLOSED, f"group {device.drafter.group} is closed to it", REPLACED_S)
                device.end(last)
                self._remove(device)

    def sweep(self, now_s: float) -> None:
        """Give up devices that were away for too long, and gateways that are silent."""
        for name, state in tuple(self.gateways.items()):
            if now_s - state.heard_at_s > _SILENT_S:
                event(log, "gateway_silent", logging.WARNING, gateway=name)
                del self.gateways[name]
                self._all_away(state, now_s)
        for device in tuple(self.all):
            if device.away_at_s is not None and now_s - device.away_at_s > GRACE_S:
                self._remove(device)
            elif not device.is_ready.is_set() and now_s - device.loading_at_s > _LOAD_S:
                last = Refused(RefusalCode.UNFIT, f"needs to load its drafter within {_LOAD_S:g} s", REPLACED_S)
                device.end(last)
                self._remove(device)

    def turn_away(self, drafter: DrafterId, reason: str, pause_s: float, now_s: float) -> None:
        """End a device's connection, and let it in again after a pause."""
        if (device := self._by_id.get(drafter)) is None:
            return
        last = Refused(RefusalCode.UNFIT, reason, max(1, round(pause_s)))
        self._bans.ban(device.dial, last, pause_s, now_s)
        device.end(last)
        device.note_unready(now_s)
        device.away_at_s = now_s + pause_s  # until then its refusal is shown

    def _hear_row(self, row: DeviceRow, state: GatewayState, now_s: float) -> list[tuple[int, Refused | None]]:
        device = self._devices.get(row.dial.device)
        if device is None and row.stage in (DeviceStage.LOADING, DeviceStage.READY):
            device = self._learn(row, state, now_s)
        if device is None or device.incarnation != row.incarnation:
            last = Refused(RefusalCode.BUSY, "not known to the fleet any more; dial again", 1)
            return [] if row.stage is DeviceStage.GONE else [(row.incarnation, last)]
        if row.breach is not None:
            self._broke(device.drafter, row.breach)
        if device.away_at_s is not None and device.away_at_s > now_s and row.stage is not DeviceStage.GONE:
            return [(row.incarnation, Refused(RefusalCode.UNFIT, "turned away", REPLACED_S))]
        if device.gateway is not state:
            if device.dial.dial >= row.dial.dial:
                return [] if row.stage is DeviceStage.GONE else [(row.incarnation, None)]  # it has moved
            if row.stage in (DeviceStage.AWAY, DeviceStage.GONE):
                return []  # what it left there says nothing of where it is
            if device.is_ready.is_set() and row.stage is not DeviceStage.READY:
                return []  # it drafts where it was until then
            device.gateway.calls.end(device.incarnation, None)
            device.move(row.dial, state)
        for direction, more in device.carried(row).items():
            self.carried_bytes[device.drafter.group, direction] += more
        self._note_stage(device, row.stage, now_s)
        return []

    def _note_stage(self, device: DialledDevice, stage: DeviceStage, now_s: float) -> None:
        if stage is DeviceStage.GONE:
            self._remove(device)
            return
        if stage is DeviceStage.READY:
            device.is_ready.set()
        elif stage is DeviceStage.AWAY or device.is_ready.is_set():
            self._note_away(device, now_s)
        if stage is not DeviceStage.AWAY:
            device.away_at_s = None

    def _learn(self, row: DeviceRow, state: GatewayState, now_s: float) -> DialledDevice | None:
        """Enter a device that an earlier fleet let in."""
        group = next((one for one in self.groups or () if one.name == row.drafter.group), None)
        if group is None or not group.may_join(row.dial.identity) or self._places.is_taken(row.drafter):
            return None
        self._last_incarnation = max(self._last_incarnation, row.incarnation)
        device = DialledDevice(row.drafter, row.dial, state)
        self._enter(device, now_s)
        return device

    def _takes(self, drafter: DrafterId, dial: DeviceDial) -> bool:
        return any(group.name == drafter.group and group.may_join(dial.identity) for group in self.groups or ())

    def _settled(self, now_s: float) -> bool:
        """Return whether a device that is not known is new: no gateway that is to run has yet to tell of it."""
        heard = {name for name, state in self.gateways.items() if state.has_told_all}
        self._is_settled = self._is_settled or self.wanted <= heard or now_s >= self._first_beat_at_s + GRACE_S
        return self._is_settled

    def _admission(self, device: DialledDevice, here: GatewayState) -> DeviceAdmission:
        others = [state.address for state in self.gateways.values() if state is not here and state.takes_devices]
        return DeviceAdmission(device.drafter, device.incarnation, tuple(others[:_OTHERS]))

    def _dialled_again(self, device: DialledDevice, dial: DeviceDial, state: GatewayState, now_s: float) -> None:
        """Note another dial of the same process: it stays where it is ready until it is so there."""
        if device.gateway is not state and device.is_ready.is_set():
            device.coming = state
            return
        if device.gateway is not state:
            device.gateway.calls.end(device.incarnation, None)
        device.move(dial, state)
        if not device.is_ready.is_set():
            device.away_at_s = now_s  # as above

    def _enter(self, device: DialledDevice, now_s: float) -> None:
        device.loading_at_s = now_s
        self._devices[device.dial.device] = self._by_id[device.drafter] = device
        self._places.take(device.drafter, device.dial.identity)
        event(log, "device_joined", drafter=device.drafter.actor_name, device=device.dial.device)
        self._joined(device.drafter)

    def _remove(self, device: DialledDevice) -> None:
        del self._devices[device.dial.device], self._by_id[device.drafter]
        self._places.free(device.drafter, device.dial.identity)
        event(log, "device_left", drafter=device.drafter.actor_name, device=device.dial.device)
        self._left(device.drafter)

    def _adopt(self, state: GatewayState) -> None:
        """Give a gateway that was only silent the devices that it had."""
        for device in self.all:
            if (device.gateway.name, device.gateway.session) == (state.name, state.session):
                device.gateway = state

    def _all_away(self, state: GatewayState, now_s: float) -> None:
        for device in self.all:
            if device.gateway is state:
                self._note_away(device, now_s)

    def _note_away(self, device: DialledDevice, now_s: float) -> None:
        device.note_unready(now_s)
        if device.away_at_s is None:
            device.away_at_s = now_s
            self._away(device.drafter)

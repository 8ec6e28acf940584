"""The fleet's directory of devices that have dialled in: who is let in, fenced, moved, learned again, and given up."""

import pickle
from dataclasses import dataclass, field, replace

import pytest

from actors.fleet.device_bans import DIALS_PER_MINUTE
from actors.fleet.device_places import MOST_OF_ONE
from actors.fleet.dialled_device import DialledDevice
from actors.fleet.dialled_devices import DialledDevices
from actors.gateway_beats import GRACE_S, DeviceAdmission, DeviceDial, DeviceRow, DeviceStage, GatewayBeat, GatewayNews
from actors.gateway_link import DialledHandle, RelayOutcome
from actors.messages import DrafterId
from actors.proved_streams import StreamPlace
from outrider.config.drafters import DrafterGroupConfig
from outrider.wire.dialling import RefusalCode, Refused

GROUP = DrafterGroupConfig(name="far", from_="gateway", engine="onnx", max_devices=2, devices=("a", "b*"))
FIRST, SECOND = DrafterId("far", 0), DrafterId("far", 1)
DIAL = DeviceDial("a", "a", b"process1", 1)
PLACE = StreamPlace("127.0.0.1", 1, b"secret")


@dataclass
class Ends:
    """A gateway that notes whom it is to turn away."""

    ended: list[tuple[int, Refused | None]] = field(default_factory=list)

    async def ask(self, *_: object) -> tuple[RelayOutcome, bytes]:
        return RelayOutcome.ELSEWHERE, b""

    def end(self, incarnation: int, last: Refused | None) -> None:
        self.ended.append((incarnation, last))


class Directory:
    def __init__(self, *, groups: tuple[DrafterGroupConfig, ...] | None = (GROUP,)) -> None:
        self.happened: list[tuple[str, DrafterId]] = []
        self.gateways = {"g0": Ends(), "g1": Ends()}

        def noted(what: str) -> object:
            return lambda drafter, *_: self.happened.append((what, drafter.place))

        self.devices = DialledDevices(self.gateways.__getitem__, *map(noted, ("joined", "away", "left", "broke")))  # type: ignore[arg-type]
        self.devices.wanted = frozenset(self.gateways)
        if groups is not None:
            self.devices.want(groups)
        for gateway in self.gateways:
            self.beat(gateway, everything=True)

    def beat(
        self, gateway: str = "g0", *rows: DeviceRow, everything: bool = False, session: int = 1, now_s: float = 0.0
    ) -> GatewayNews:
        beat = GatewayBeat(gateway, session, PLACE, f"{gateway}:8443", rows, everything)
        return self.devices.hear(beat, now_s)

    def admitted(self, dial: DeviceDial = DIAL, gateway: str = "g0", now_s: float = 0.0) -> DeviceAdmission:
        found = self.devices.admit(gateway, dial, now_s)
        assert isinstance(found, DeviceAdmission), found
        return found

    @property
    def first(self) -> DialledDevice:
        (found,) = (device for device in self.devices.all if device.drafter.place == FIRST)
        return found

    def refused(self, dial: DeviceDial = DIAL, gateway: str = "g0", now_s: float = 0.0) -> RefusalCode:
        found = self.devices.admit(gateway, dial, now_s)
        assert isinstance(found, Refused)
        return found.code


def row(admission: DeviceAdmission, stage: DeviceStage = DeviceStage.READY, dial: DeviceDial = DIAL) -> DeviceRow:
    return DeviceRow(dial, admission.drafter, admission.incarnation, stage)


def test_a_device_is_a_drafter_of_the_first_group_that_takes_it() -> None:
    directory = Directory()
    assert directory.admitted().drafter.place == FIRST
    assert directory.admitted(replace(DIAL, device="b1", identity="b1")).drafter.place == SECOND
    assert directory.refused(replace(DIAL, device="b2", identity="b2")) is RefusalCode.GROUP_FULL
    assert directory.refused(replace(DIAL, device="c", identity="c")) is RefusalCode.GROUP_CLOSED
    assert directory.happened == [("joined", FIRST), ("joined", SECOND)]


def test_the_same_process_moves_once_it_is_ready_elsewhere() -> None:
    """Make before break: until then it is where it was, which drafts on."""
    directory, moved = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    again = directory.admitted(moved, "g1")
    assert (again.drafter.place, again.incarnation, again.others) == (FIRST, first.incarnation, ("g0:8443",))
    assert directory.beat("g1", row(first, DeviceStage.LOADING, moved)).ended == ()
    assert directory.gateways["g0"].ended == []
    device = directory.first
    assert device.gateway.name == "g0"
    directory.beat("g1", row(first, DeviceStage.READY, moved))
    assert device.gateway.name == "g1"
    assert directory.gateways["g0"].ended == [(first.incarnation, None)], "which tells it nothing"
    assert directory.refused(moved) is RefusalCode.TOO_MANY
    late = directory.beat("g0", row(first, DeviceStage.AWAY))
    assert late.ended == ((first.incarnation, None),)
    assert directory.happened == [("joined", FIRST)], "it was never away"


def test_a_device_that_is_away_moves_as_soon_as_it_dials_elsewhere() -> None:
    directory, moved = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.beat("g0", row(first, DeviceStage.AWAY))
    directory.admitted(moved, "g1")
    assert directory.gateways["g0"].ended == [(first.incarnation, None)]
    directory.beat("g1", row(first, DeviceStage.READY, moved))
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]


def test_a_gateway_to_which_a_move_failed_does_not_give_the_device_up() -> None:
    """It was there for a moment, and is away from where it drafted now."""
    directory, moved = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.admitted(moved, "g1")
    directory.beat("g1", row(first, DeviceStage.LOADING, moved))
    directory.beat("g0", row(first, DeviceStage.AWAY))
    assert directory.beat("g1", row(first, DeviceStage.GONE, moved)).ended == ()
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]
    back = replace(DIAL, dial=3)
    directory.admitted(back)
    directory.beat("g0", row(first, DeviceStage.READY, back))
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]


def test_a_later_dial_to_the_same_gateway_is_away_only_while_it_loads() -> None:
    directory, again = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.admitted(again)
    directory.beat("g0", row(first, DeviceStage.READY, again))
    assert directory.happened == [("joined", FIRST)]
    directory.beat("g0", row(first, DeviceStage.LOADING, again))
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]


def test_a_device_that_is_turned_away_while_it_moves_is_so_at_both_gateways() -> None:
    directory, moved = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.admitted(moved, "g1")
    directory.devices.turn_away(directory.first.drafter, "lies", 20.0, 0.0)
    for gateway in directory.gateways.values():
        ((incarnation, last),) = gateway.ended
        assert last is not None
        assert (incarnation, last.code) == (first.incarnation, RefusalCode.UNFIT)
    ((incarnation, last),) = directory.beat("g1", row(first, DeviceStage.READY, moved), now_s=1.0).ended
    assert (incarnation, last is None) == (first.incarnation, False), "it was told before that was heard there"


def test_a_breach_at_the_gateway_that_a_device_moves_to_counts() -> None:
    directory, moved = Directory(), replace(DIAL, dial=2)
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.admitted(moved, "g1")
    directory.beat("g1", replace(row(first, DeviceStage.AWAY, moved), breach="sent text"))
    assert directory.happened == [("joined", FIRST), ("broke", FIRST)]


def test_a_newer_process_fences_the_older_one() -> None:
    directory = Directory()
    first = directory.admitted()
    newer = directory.admitted(replace(DIAL, process=b"process2"), "g1")
    assert newer.drafter.place == FIRST
    assert newer.incarnation > first.incarnation
    ((incarnation, last),) = directory.gateways["g0"].ended
    assert incarnation == first.incarnation
    assert last is not None
    assert (last.code, last.retry_after_s) == (RefusalCode.REPLACED, 60)
    assert directory.happened == [("joined", FIRST), ("left", FIRST), ("joined", FIRST)]
    ((told, refused),) = directory.beat("g0", row(first)).ended
    assert (told, refused is None) == (first.incarnation, False)


def test_a_process_that_was_replaced_may_not_come_back_at_once() -> None:
    directory = Directory()
    directory.admitted()
    newer = directory.admitted(replace(DIAL, process=b"process2"))
    assert directory.devices.admit("g0", replace(DIAL, dial=2), 10.0) == Refused(
        RefusalCode.REPLACED, "replaced by a newer process of the same identity", 50
    )
    device = directory.first
    assert device.incarnation == newer.incarnation
    assert directory.admitted(replace(DIAL, dial=3), now_s=60.0).drafter.place == FIRST


def test_one_key_dials_so_often_and_keeps_no_other_out() -> None:
    directory = Directory()
    for number in range(DIALS_PER_MINUTE):
        directory.admitted(replace(DIAL, process=f"{number:08}".encode()))
    refused = directory.devices.admit("g0", replace(DIAL, process=b"one more"), 0.0)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retry_after_s) == (RefusalCode.TOO_MANY, 1)
    directory.admitted(replace(DIAL, device="b", identity="b"))
    directory.admitted(replace(DIAL, process=b"one more"), now_s=1.0)


def test_devices_of_one_key_whose_addresses_change_do_not_hold_up_each_other() -> None:
    directory = Directory(groups=(replace(GROUP, max_devices=4),))
    dials = [replace(DIAL, device=f"a/{number}", process=f"process{number}".encode()) for number in range(4)]
    for number in range(1, DIALS_PER_MINUTE // 2):
        for dial in dials:
            directory.admitted(replace(dial, dial=number))
    for number in range(DIALS_PER_MINUTE // 2, DIALS_PER_MINUTE + 2):
        directory.admitted(replace(dials[0], dial=number))
    assert directory.refused(replace(dials[0], dial=number + 1)) is RefusalCode.TOO_MANY


def test_a_device_that_comes_back_within_the_grace_was_only_away() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.beat("g0", row(first, DeviceStage.AWAY), now_s=1.0)
    directory.devices.sweep(1.0 + GRACE_S - 9.0)
    directory.admitted(replace(DIAL, dial=2), now_s=2.0)
    directory.beat("g0", row(first, dial=replace(DIAL, dial=2)), now_s=2.0)
    directory.beat("g0", now_s=2.0 + 2 * GRACE_S)
    directory.devices.sweep(2.0 + 2 * GRACE_S)
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]


def test_a_device_that_stays_away_or_says_goodbye_is_given_up() -> None:
    directory = Directory()
    first, second = directory.admitted(), directory.admitted(replace(DIAL, device="b", identity="b"))
    directory.beat("g0", row(first))
    directory.beat("g0", row(first, DeviceStage.AWAY), row(second, DeviceStage.GONE, replace(DIAL, device="b")))
    directory.beat("g0", now_s=GRACE_S + 1.0)
    directory.devices.sweep(GRACE_S + 1.0)
    assert directory.happened[2:] == [("away", FIRST), ("left", SECOND), ("left", FIRST)]


def test_devices_of_a_silent_gateway_are_away_until_they_dial_another() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.beat("g1", now_s=8.0)
    directory.devices.sweep(8.0)
    assert list(directory.devices.gateways) == ["g1"]
    assert directory.happened[1:] == [("away", FIRST)]
    assert directory.admitted(replace(DIAL, dial=2), "g1", 9.0).incarnation == first.incarnation
    directory.beat("g1", row(first, dial=replace(DIAL, dial=2)), now_s=9.0)
    directory.beat("g1", now_s=9.0 + 2 * GRACE_S)
    directory.devices.sweep(9.0 + 2 * GRACE_S)
    assert directory.happened[2:] == []


def test_a_gateway_that_was_only_silent_keeps_its_devices() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", row(first))
    directory.devices.sweep(6.0)
    assert directory.happened == [("joined", FIRST)], "a heartbeat may be late by its deadline"
    directory.devices.sweep(8.0)
    assert directory.beat("g0", now_s=8.5).tell_all
    assert directory.beat("g0", row(first), everything=True, now_s=8.6).ended == ()
    directory.beat("g0", now_s=8.5 + 2 * GRACE_S)
    directory.devices.sweep(8.5 + 2 * GRACE_S)
    assert directory.happened == [("joined", FIRST), ("away", FIRST)]
    assert directory.gateways["g0"].ended == []


def test_a_gateway_that_was_started_anew_has_no_devices() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", row(first))
    assert directory.beat("g0", session=2).tell_all
    assert directory.happened[1:] == [("away", FIRST)]


def test_a_fleet_that_was_restarted_learns_who_is_here_once_it_knows_its_groups() -> None:
    before = Directory()
    first = before.admitted(replace(DIAL, device="b", identity="b"))
    known = row(first, dial=replace(DIAL, device="b", identity="b"))
    directory = Directory(groups=None)
    assert directory.beat("g0", known, everything=True).tell_all
    assert directory.refused() is RefusalCode.BUSY
    directory.devices.want((GROUP,))
    assert directory.beat("g0", known, everything=True).ended == ()
    assert directory.happened == [("joined", FIRST)]
    found = directory.first
    assert found.incarnation == first.incarnation
    assert directory.refused(now_s=GRACE_S - 1.0) is RefusalCode.BUSY, "another gateway may have it"
    directory.beat("g0", now_s=GRACE_S)
    assert directory.admitted(now_s=GRACE_S).drafter.place == SECOND
    assert directory.admitted(now_s=GRACE_S, dial=replace(DIAL, dial=2)).incarnation > first.incarnation


def test_a_restarted_fleet_lets_nobody_in_before_it_knows_who_is_here() -> None:
    before = Directory()
    first, second = before.admitted(), before.admitted(replace(DIAL, device="b", identity="b"))
    directory = Directory(groups=None)
    directory.devices.want((GROUP,))
    directory.beat("g0")
    assert directory.refused(replace(DIAL, dial=2)) is RefusalCode.BUSY
    directory.beat("g0", row(first), everything=True)
    assert directory.refused(replace(DIAL, device="b1", identity="b1")) is RefusalCode.BUSY, "its place may be taken"
    assert directory.admitted(replace(DIAL, dial=2)).incarnation == first.incarnation
    second_here = row(second, dial=replace(DIAL, device="b", identity="b"))
    assert directory.beat("g1", second_here, everything=True).ended == ()


@pytest.mark.parametrize("has_devices", [False, True])
def test_a_restarted_fleet_takes_no_device_for_gone_before_its_gateway_had_time_to_tell(has_devices: bool) -> None:
    """Whether or not the first gateway that it hears of has devices."""
    before = Directory()
    first, second = before.admitted(), before.admitted(replace(DIAL, device="b", identity="b"))
    directory = Directory(groups=None)
    directory.devices.want((GROUP,))
    directory.beat("g0", *[row(second, dial=replace(DIAL, device="b", identity="b"))] * has_devices, everything=True)
    assert directory.refused(replace(DIAL, dial=2)) is RefusalCode.BUSY
    assert not directory.devices.knows_gone(FIRST, GRACE_S - 1.0)
    directory.beat("g1", row(first), everything=True, now_s=5.0)
    assert directory.admitted(replace(DIAL, dial=2), now_s=5.0).incarnation == first.incarnation
    assert directory.devices.knows_gone(FIRST, GRACE_S)


def test_a_closed_group_turns_its_devices_away() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.devices.want((replace(GROUP, devices=("b",)),))
    ((incarnation, last),) = directory.gateways["g0"].ended
    assert last is not None
    assert (incarnation, last.code) == (first.incarnation, RefusalCode.GROUP_CLOSED)
    assert directory.happened[1:] == [("left", FIRST)]
    assert directory.refused() is RefusalCode.GROUP_CLOSED


def test_a_device_that_is_turned_away_may_not_come_in_before_its_pause_is_over() -> None:
    directory = Directory()
    directory.admitted()
    directory.devices.turn_away(directory.first.drafter, "lies", 20.0, 0.0)
    refused = directory.devices.admit("g0", replace(DIAL, dial=2), 5.0)
    assert refused == Refused(RefusalCode.UNFIT, "lies", 15)
    directory.beat(now_s=1.0 + GRACE_S)
    directory.devices.sweep(1.0 + GRACE_S)
    assert directory.first, "so that /status tells why"
    directory.beat(now_s=20.0)
    assert directory.admitted(replace(DIAL, dial=3), now_s=21.0).drafter.place == FIRST


@pytest.mark.parametrize("was_here", [False, True])
def test_a_device_that_was_let_in_and_never_came_is_given_up(was_here: bool) -> None:
    directory = Directory()
    first = directory.admitted()
    if was_here:
        directory.beat("g0", row(first))
        directory.beat("g0", row(first, DeviceStage.AWAY))
        directory.admitted(replace(DIAL, dial=2), "g1")
    directory.beat("g0", now_s=GRACE_S + 1.0)
    directory.devices.sweep(GRACE_S + 1.0)
    assert directory.happened[-1] == ("left", FIRST)
    assert not directory.devices.all


def test_a_device_that_does_not_load_its_drafter_in_time_is_turned_away() -> None:
    directory = Directory()
    first = directory.admitted()
    for now_s in range(0, 606, 5):
        directory.beat("g0", row(first, DeviceStage.LOADING), now_s=now_s)
        directory.devices.sweep(now_s)
    ((incarnation, last),) = directory.gateways["g0"].ended
    assert last is not None
    assert (incarnation, last.code, last.retry_after_s) == (first.incarnation, RefusalCode.UNFIT, 60)
    assert not directory.devices.all


def test_a_breach_is_told_once() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", replace(row(first), breach="sent text"))
    assert directory.happened[1:] == [("broke", FIRST)]


def test_what_devices_carry_is_added_up_by_group_over_all_gateways() -> None:
    directory = Directory()
    first = directory.admitted()
    directory.beat("g0", replace(row(first), sent_bytes=100, received_bytes=10))
    directory.beat("g0", replace(row(first), sent_bytes=150, received_bytes=10))
    moved = replace(DIAL, dial=2)
    directory.admitted(moved, "g1")
    directory.beat("g1", replace(row(first, dial=moved), sent_bytes=20, received_bytes=5))
    assert directory.devices.carried_bytes == {("far", "down"): 170, ("far", "up"): 15}


def test_one_key_can_take_a_few_places_only() -> None:
    directory = Directory(groups=(replace(GROUP, max_devices=100),))
    for number in range(MOST_OF_ONE):
        directory.admitted(replace(DIAL, device=f"a/{number}"))
    assert directory.refused(replace(DIAL, device="a/more")) is RefusalCode.TOO_MANY
    directory.admitted(replace(DIAL, device="b", identity="b"))


def test_a_device_is_leased_as_where_it_is_now() -> None:
    directory = Directory()
    first = directory.admitted()
    device = directory.first
    leased = pickle.loads(pickle.dumps(device))
    assert leased == DialledHandle(PLACE, first.incarnation, device.versions)
    assert b"secret" not in repr(leased).encode()


@pytest.mark.parametrize("gateway", ["g0", "g2"])
def test_a_gateway_that_is_not_known_lets_nobody_in(gateway: str) -> None:
    directory = Directory()
    directory.devices.sweep(10.0)
    assert directory.refused(gateway=gateway) is RefusalCode.BUSY

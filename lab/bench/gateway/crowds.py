"""Many devices at gateways on this machine: rounds at a rate, idle ones, and a gateway that is killed under them."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from actors.coordinator.gateway_transport import GatewayLink
from actors.fleet.dialled_device import DialledDevice
from actors.gateway_link import RelayOutcome
from actors.proved_streams import StreamPlace
from lab.bench.gateway.pipes import until
from lab.bench.gateway.rounds import greedy_round
from lab.bench.gateway.scene import Scene, now_s, scene_of

_DIALLED_PER_S = 40.0  # at the least, while they begin
_BEGINS_S, _SETTLE_S = 0.2, 3.0
_MOST_REPLY_BYTES = 4096
_DEADLINE_S = 5.0  # of a call, as coordinators have by default
_FILE_BYTES = 2**20


@dataclass(slots=True)
class Driven:
    """Rounds of a load. ``late`` could not begin in time, as the one before had not ended."""

    round_s: list[float] = field(default_factory=list)
    late: int = 0
    unanswered: int = 0

    def percentile_ms(self, share: float) -> float:
        return 1e3 * float(np.percentile(self.round_s, share)) if self.round_s else float("nan")


@dataclass(frozen=True, slots=True)
class Load:
    devices: int
    asked_per_s: float
    exchanges_per_s: float
    gateway_us: float  # processor time of gateway and relay an exchange
    coordinator_us: float
    devices_us: float
    p50_ms: float
    p99_ms: float
    late: int
    unanswered: int


@dataclass(frozen=True, slots=True)
class Idle:
    devices: int
    gateways: int
    joined_in_s: float
    kb_a_device: tuple[float, ...]  # by gateway: resident memory above that before the first
    gateway_cores: tuple[float, ...]  # processor time of a second, spent on pings and pongs
    lost: int  # of the devices, while they were idle


@dataclass(frozen=True, slots=True)
class Storm:
    redials: int
    first_s: float  # after the gateway was killed, until one of its devices may draft elsewhere
    half_s: float
    all_s: float
    p99_before_ms: float  # of rounds of the other gateway's devices
    p99_during_ms: float
    unanswered: int


async def load(folder: Path, devices: int, per_s: float, seconds: float) -> Load:
    async with scene_of(folder, devices) as scene:
        await scene.add_gateway("gateway-0", _file(folder))
        await scene.add_devices("devices", scene.crowd(range(devices), ("gateway-0",)))
        await _joined(scene, devices)
        names = "gateway-0", "devices"
        before, own = [scene.cpu_s(name) for name in names], sum(os.times()[:2])
        began_s = now_s()
        driven = await drive(scene.ready_at("gateway-0"), per_s, seconds)
        took_s, count = max(seconds, now_s() - began_s - _BEGINS_S), max(1, len(driven.round_s))
        spent = [scene.cpu_s(name) - one for name, one in zip(names, before, strict=True)]
        gateway_us, devices_us, own_us = (1e6 * one / count for one in (*spent, sum(os.times()[:2]) - own))
        times = driven.percentile_ms(50), driven.percentile_ms(99)
        per_second = len(driven.round_s) / took_s
        return Load(devices, per_s, per_second, gateway_us, own_us, devices_us, *times, driven.late, driven.unanswered)


async def idle(folder: Path, devices: int, gateways: int, seconds: float) -> Idle:
    async with scene_of(folder, devices) as scene:
        names = [f"gateway-{number}" for number in range(gateways)]
        for name in names:
            await scene.add_gateway(name, _file(folder))
        await asyncio.sleep(_SETTLE_S)
        memory, began_s = [scene.resident_bytes(name) for name in names], now_s()
        for number, name in enumerate(names):
            share = range(number * devices // gateways, (number + 1) * devices // gateways)
            await scene.add_devices(f"devices-{number}", scene.crowd(share, (name,)))
        await _joined(scene, devices)
        joined_in_s = now_s() - began_s
        await asyncio.sleep(_SETTLE_S)
        held, cpu = [len(scene.ready_at(name)) for name in names], [scene.cpu_s(name) for name in names]
        grown = [scene.resident_bytes(name) - one for name, one in zip(names, memory, strict=True)]
        await asyncio.sleep(seconds)
        cores = [(scene.cpu_s(name) - one) / seconds for name, one in zip(names, cpu, strict=True)]
        kept = sum(len(scene.ready_at(name)) for name in names)
        each = tuple(one / 1e3 / count for one, count in zip(grown, held, strict=True))
        return Idle(devices, gateways, joined_in_s, each, tuple(cores), devices - kept)


async def storm(folder: Path, redials: int, others: int, per_s: float, seconds: float, draft_s: float) -> Storm:
    """Kill a gateway with ``redials`` devices, while ``others`` draft at another one."""
    async with scene_of(folder, redials + others) as scene:
        for name in ("gateway-0", "gateway-1"):
            await scene.add_gateway(name, _file(folder))
        lasting = scene.crowd(range(others), ("gateway-1",), draft_s=draft_s)
        moved = range(others, others + redials)
        leaving = scene.crowd(moved, ("gateway-0", "gateway-1"), at_once=redials)
        await scene.add_devices("lasting", lasting)
        await _joined(scene, others)
        await scene.add_devices("leaving", leaving, nice=10)  # as if they were other machines
        await _joined(scene, others + redials)
        await asyncio.sleep(_SETTLE_S)
        drafting = scene.ready_at("gateway-1")
        before = await drive(drafting, per_s, seconds)
        during = asyncio.create_task(drive(drafting, per_s, seconds))
        os.kill(scene.children["gateway-0"], signal.SIGKILL)
        killed_s, times = now_s(), list[float]()
        with suppress(TimeoutError):
            async with asyncio.timeout(3 * seconds):
                while len(times) < redials:
                    await asyncio.sleep(0.02)
                    arrived = len(scene.ready_at("gateway-1")) - others
                    times += [now_s() - killed_s] * (arrived - len(times))
        driven, missing = await during, float("inf")
        times += [missing] * (redials - len(times))
        return Storm(
            redials,
            times[0],
            times[len(times) // 2],
            times[-1],
            before.percentile_ms(99),
            driven.percentile_ms(99),
            before.unanswered + driven.unanswered,
        )


async def drive(devices: Sequence[DialledDevice], per_s: float, seconds: float) -> Driven:
    """Have devices draft at this rate together, each at most one block at a time, over a coordinator's own streams."""
    links, driven = dict[StreamPlace, GatewayLink](), Driven()
    begins_s, interval_s = now_s() + _BEGINS_S, len(devices) / per_s
    ends_s = begins_s + seconds

    async def rounds(number: int, device: DialledDevice) -> None:
        link = links[device.gateway.place]
        call = greedy_round(f"chatcmpl-{number:032x}-0")[0]
        due_s = begins_s + interval_s * number / len(devices)
        while due_s < ends_s:
            await asyncio.sleep(max(0.0, due_s - now_s()))
            asked_s = now_s()
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    outcome, _ = await link.asked(device.incarnation, call, _MOST_REPLY_BYTES)
            except OSError:  # ``TimeoutError`` is one
                outcome = RelayOutcome.ELSEWHERE
            if outcome is RelayOutcome.REPLIED:
                driven.round_s.append(now_s() - asked_s)
            else:
                driven.unanswered += 1
            due_s += interval_s
            while due_s < now_s() - interval_s:
                driven.late += 1
                due_s += interval_s

    for device in devices:
        links.setdefault(device.gateway.place, GatewayLink(device.gateway.place))
    await asyncio.gather(*(rounds(number, device) for number, device in enumerate(devices)))
    for link in links.values():
        await link.disconnect()
    return driven


async def _joined(scene: Scene, devices: int) -> None:
    def ready() -> int:
        return sum(device.is_ready.is_set() for device in scene.directory.all)

    await until(lambda: ready() == devices, 30.0 + devices / _DIALLED_PER_S, f"{devices} devices that are ready")


def _file(folder: Path) -> Path:
    """Return what stands for a drafter's file, which these devices do not fetch."""
    file = folder / "drafter.onnx"
    file.write_bytes(bytes(_FILE_BYTES))
    return file

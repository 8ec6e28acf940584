"""A real ``outrider-edge`` behind a link: bits of an exchange, and rounds while its public address changes."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.gateway_link import DialledHandle
from lab.bench.gateway.pipes import until
from lab.bench.gateway.rounds import WINDOW
from lab.bench.gateway.scene import Scene, scene_of
from lab.bench.gateway.tun_link import HERE, TunLink, linked
from outrider.config.schema import Config
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import OutriderError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.engines.onnx.kind import exported_file
from outrider.models.loading import load_target_facts
from outrider.protocols.registry import PLAINEST
from outrider.session.session import CoordinatorSession

_NAME = "chatcmpl-0123456789abcdef0123456789abcdef-0"
_PROMPT = tuple(range(500, 564))
_DEADLINE_S, _START_S = 10.0, 120.0
_VERIFY_S = 0.06
_ROUNDS, _WARM = 60, 3
_KEPT_TOKENS = 600  # of a text, then another one is begun


@dataclass(frozen=True, slots=True)
class Bits:
    rtt_ms: float
    wire_kbit: float  # an exchange: IP packets of both directions, as both kernels sent them
    packets: float
    bare_acks: tuple[float, ...]  # of these, those that carry nothing: of the gateway's kernel, and of the device's
    told_kbit: float  # as the gateway tells the fleet, by TCP_INFO
    name_chars: int  # of the generation, which each call has


@dataclass(frozen=True, slots=True)
class Roaming:
    rtt_ms: float
    every_s: float
    changes: int
    rounds: int
    dials: int
    lost: int  # leases: the coordinator had to do without the device
    prefills: int  # texts that were opened again though they were not new
    gap_p50_s: float  # between a draft that was asked for and its answer
    gap_p99_s: float
    gap_most_s: float


class Text:
    """A generation's rounds, of which the verifier takes two of four tokens and corrects the third."""

    def __init__(self, transport: GatewayDrafterTransport, wire: WireFormat, name: str) -> None:
        self._transport, self.name = transport, name
        self._wire = replace(wire, version=transport.message_version)
        self._session = CoordinatorSession(self._wire, name)
        self.tokens, self._known, self._number = [*_PROMPT], len(_PROMPT), 0
        self.prefills = 0

    async def open(self) -> None:
        opening = OpenGeneration(
            self.name, _PROMPT, SamplingParams(temperature=0.0), tuple(self.tokens[len(_PROMPT) :])
        )
        await self._transport.open(opening, DraftTerms(self._wire), _DEADLINE_S)

    async def round(self) -> None:
        feedback, prefix_hash = tuple(self.tokens[self._known :]), extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens)
        plan = DraftPlan(PLAINEST, WINDOW)
        request = DraftRequest(self.name, self._number, self._known, feedback, prefix_hash, plan)
        order = self._session.encode_order(request)
        answer = await self._transport.exchange(self.name, order, _DEADLINE_S)
        draft = self._session.decode_answer(answer.data, request) if answer.data else None
        if not isinstance(draft, Draft):
            self.prefills += 1
            return
        self._known, self._number = len(self.tokens), self._number + 1
        self.tokens += [*draft.token_ids[:2], 999]


async def bits(folder: Path, config: Config, rtt_s: float) -> Bits:
    async with _device(folder, config, rtt_s) as (scene, link, transport, wire):
        text = Text(transport, wire, _NAME)
        await text.open()
        for _ in range(_WARM):
            await text.round()
        await asyncio.sleep(1.0)
        told = await _told(scene)
        packets, sent, bare = link.packets, link.packet_bytes, tuple(link.bare_acks)
        for _ in range(_ROUNDS):
            await text.round()
            await asyncio.sleep(_VERIFY_S)
        packets, sent = link.packets - packets, link.packet_bytes - sent
        told = await _told(scene) - told
        acks = tuple((now - then) / _ROUNDS for now, then in zip(link.bare_acks, bare, strict=True))
        kbit = 8e-3 / _ROUNDS
        return Bits(1e3 * rtt_s, kbit * sent, packets / _ROUNDS, acks, kbit * told, len(_NAME))


async def roaming(folder: Path, config: Config, rtt_s: float, every_s: float, seconds: float) -> Roaming:
    async with _device(folder, config, rtt_s) as (scene, link, transport, wire):
        (device,) = scene.directory.all
        dials, changes, lost, prefills, number = device.dial.dial, 0, 0, 0, 0
        gaps_s = list[float]()

        async def rebind() -> None:
            nonlocal changes
            while True:
                await asyncio.sleep(every_s)
                link.rebind()
                changes += 1

        rebinding, ends_s = asyncio.create_task(rebind()), time.monotonic() + seconds
        text = Text(transport, wire, f"{_NAME}0")
        await text.open()
        try:
            while time.monotonic() < ends_s:
                asked_s = time.monotonic()
                try:
                    await text.round()
                except OutriderError:
                    lost += 1
                    await asyncio.sleep(1.0)
                    continue
                gaps_s.append(time.monotonic() - asked_s)
                prefills += text.prefills
                text.prefills = 0
                await asyncio.sleep(_VERIFY_S)
                if len(text.tokens) > _KEPT_TOKENS:
                    number += 1
                    text = Text(transport, wire, f"{_NAME}{number}")
                    await text.open()
        finally:
            rebinding.cancel()
        (device,) = scene.directory.all
        gaps = tuple(float(np.percentile(gaps_s, share)) for share in (50, 99, 100))
        return Roaming(1e3 * rtt_s, every_s, changes, len(gaps_s), device.dial.dial - dials, lost, prefills, *gaps)


@asynccontextmanager
async def _device(
    folder: Path, config: Config, rtt_s: float
) -> AsyncIterator[tuple[Scene, TunLink, GatewayDrafterTransport, WireFormat]]:
    """Start a gateway here and ``outrider-edge`` in a namespace of its own, and wait until it may draft."""
    target, model = config.model.target, config.drafters[0].model
    file = await asyncio.to_thread(exported_file, model, target)
    wire, links = WireFormat(load_target_facts(target).vocab_size), GatewayLinks()
    with linked(rtt_s) as link:
        async with scene_of(folder, 1, HERE) as scene:
            await scene.add_gateway("gateway-0", file)
            key = folder / "device.key"
            key.write_text(scene.keys[0], encoding="ascii")
            address = scene.directory.gateways["gateway-0"].address
            options = ("--connect", f"wss://{address}", "--ca", str(folder / "ca.pem"), "--key-file", str(key))
            process = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", link.namespace, sys.executable, "-m", "edge.main", *options),
                env={**os.environ, "CACHE_DIRECTORY": str(folder / "cache")},
                stdout=asyncio.subprocess.DEVNULL,
            )
            try:
                await until(lambda: bool(scene.ready_at("gateway-0")), _START_S, "a device that is ready")

                async def locate(_: DialledHandle) -> DialledHandle | None:
                    return _handle(scene)

                handle = _handle(scene)
                assert handle is not None, "it is ready"
                yield scene, link, GatewayDrafterTransport("device", handle, links, locate), wire
            finally:
                await links.disconnect()
                process.terminate()
                await process.wait()


def _handle(scene: Scene) -> DialledHandle | None:
    """Return where the one device is, as a lease has it."""
    for device in scene.directory.all:
        return DialledHandle(device.gateway.place, device.incarnation, device.versions)
    return None


async def _told(scene: Scene) -> int:
    """Return what the fleet was told that the device carried, when nothing is under way."""
    await asyncio.sleep(6.0)  # counts are told every 5 s
    (device,) = scene.directory.all
    return device.sent_bytes + device.received_bytes

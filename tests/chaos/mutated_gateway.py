"""Mutated messages of devices that dial in, and mutated frames between gateways and coordinators.

In this process: all of them meet the readers, some a gateway over TLS, beside a device whose coordinator goes on.
"""

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random

import aiohttp
import yaml

from actors.coordinator.gateway_transport import GatewayDrafterTransport, GatewayLinks
from actors.gateway.device_calls import DeviceCalls
from actors.gateway.gateway import Gateway
from actors.gateway_link import DialledHandle, call_of, read_relayed, reply_of
from actors.messages import DrafterId
from outrider.contracts.errors import MessageError, OutriderError
from outrider.tenants.devices import decode_devices
from outrider.versions import DIAL_VERSIONS, VERSIONS
from outrider.wire.calls import write_call
from outrider.wire.dialling import (
    Bye,
    DeviceReady,
    Hello,
    NumberedCall,
    NumberedReply,
    Welcome,
    write_dialled,
)
from outrider.wire.replies import Answer, plain
from outrider.wire.short_forms import CallHeads, read_from_device, write_reply
from tests.chaos.mutated_messages import Counts
from tests.chaos.mutating import mutated_bytes
from tests.unit.actors.coordinator.transport_suite import CARD, Client, SuiteHost
from tests.unit.actors.gateway.dialling import GROUP, Dialler, DirectFleet, Place, gateway_of, until

_LIVE_EVERY = 100
_HOSTILE = [f"hostile-device-key-{number:04}" for number in range(256)]
_SOUND = (
    write_dialled(Hello(DIAL_VERSIONS, VERSIONS, "0.1.0", b"process.", 1, "laptop", cached=bytes(32))),
    write_dialled(DeviceReady(plain(CARD))),
    write_dialled(NumberedReply(1, plain(Answer(b"block", 0.1)))),
    write_dialled(Bye()),
    write_reply(NumberedReply(1, plain(Answer(b"block", 0.1)))),
)
_FRAMES = (
    b"\0\0\0\x07" + bytes(7) + b"\x05" + b"\0\0\0\x01" + b"\0\0\x10\0abc",
    b"\0\0\0\x04" + bytes(7) + b"\x05" + b"\0\0\0\x02" + b"\0abc",
)
_EXCHANGE = write_call("exchange", "text", b"order")
_FILE = b"keys:\n  - {name: a, sha256: '" + b"0" * 64 + b"'}\nrevoked: [b, '" + b"f" * 64 + b"']\n"


def gateways(seed: int, number: int) -> Counts:
    """What devices tell gateways, what these and coordinators tell each other, and who may dial in."""
    return asyncio.run(_tried(Random(f"gateways {seed}"), number))


async def _tried(rng: Random, number: int) -> Counts:
    counts, fleet = Counts(), DirectFleet()
    fleet.devices.want([replace(GROUP, max_devices=len(_HOSTILE))])
    with tempfile.TemporaryDirectory() as folder:
        place = Place.made(Path(folder))
        own = sha256(place.key.encode()).hexdigest()
        listed = [{"name": name, "key": name} for name in _HOSTILE]
        place.write_devices(yaml.safe_dump({"keys": [{"name": "device", "sha256": own}, *listed]}))
        async with gateway_of(place, fleet) as gateway:
            beside, links = Dialler(place, SuiteHost(), "beside"), GatewayLinks()
            await beside.dial(gateway)
            await until(lambda: any(device.is_ready.is_set() for device in fleet.devices.all))
            handle = fleet.handle()
            assert handle is not None

            async def locate(_: DialledHandle) -> DialledHandle | None:
                return fleet.handle(DrafterId("far", 0))

            client = Client(GatewayDrafterTransport("beside", handle, links, locate), "beside")
            await client.open()
            try:
                while counts.tried < number:
                    for _ in range(_LIVE_EVERY):
                        await _read(rng, counts)
                    key = _HOSTILE[counts.tried // _LIVE_EVERY % len(_HOSTILE)]  # a breach keeps the last one out
                    counts.let_in += await _sent(rng, Dialler(place, name="hostile", key=key), gateway)
                    if len(client.tokens) > 90:
                        client = Client(client.transport, "beside")
                        await client.open()
                    await client.round()
            finally:
                await links.disconnect()
                await beside.close()
    return counts


async def _read(rng: Random, counts: Counts) -> None:
    bad = mutated_bytes(rng, rng.choice(_SOUND), rng.choice(_SOUND))
    calls = DeviceCalls(1)
    calls.ask(write_call("card"), 4096, lambda *_: None, 0.0)
    with suppress(MessageError):
        found = read_from_device(bad)
        counts.understood += 1
        if isinstance(found, NumberedReply):
            calls.replied(found)
    _heard(rng)
    reader = asyncio.StreamReader()
    reader.feed_data(mutated_bytes(rng, b"".join(_FRAMES), rng.choice(_FRAMES)))
    reader.feed_eof()
    with suppress(MessageError, asyncio.IncompleteReadError):
        while True:
            frame = await read_relayed(reader)
            call_of(frame)
            reply_of(frame)
    with suppress(OutriderError):
        decode_devices(mutated_bytes(rng, _FILE, _FILE), "devices.yaml")
    counts.tried += 4


def _heard(rng: Random) -> None:
    """Have a device read what is nearly what a gateway says: calls in long and in short form."""
    ours, theirs = CallHeads(), CallHeads()
    calls = [ours.write(NumberedCall(1, call)) for call in (_EXCHANGE, _EXCHANGE, write_call("close", "text"))]
    for call in calls:
        with suppress(MessageError):
            theirs.read(mutated_bytes(rng, call, rng.choice(calls)))


async def _sent(rng: Random, device: Dialler, gateway: Gateway) -> bool:
    """Send what is mutated on a connection, if it is let in; return whether it was."""
    is_in = False
    with suppress(OSError, aiohttp.ClientError):
        if is_in := isinstance(await device.dial(gateway), Welcome):
            for _ in range(3):
                await device.send(mutated_bytes(rng, rng.choice(_SOUND[1:]), rng.choice(_SOUND)))
    await device.close()
    return is_in

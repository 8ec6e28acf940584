"""The parts at tiny sizes: what they measure is all there, by real gateways and devices that dial in over TLS."""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.gateway_link import RelayOutcome
from actors.waiting import within
from lab.bench.gateway import crowds
from lab.bench.gateway.crowds import drive
from lab.bench.gateway.gateway_process import PipedFleet
from lab.bench.gateway.rounds import greedy_round
from lab.bench.gateway.tun_link import _changed
from outrider.wire.calls import read_call
from outrider.wire.replies import Answer, read_reply

SIZES = ["--devices", "6", "--rate", "30", "--redials", "4", "--drafting", "3", "--rounds", "30"]
SIZES += ["--seconds", "2"]


@pytest.mark.long
def test_parts_measure_what_they_say(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    run = [sys.executable, "-m", "cluster.cli", "bench", "gateway", "--parts", "load", "storm", *SIZES]
    subprocess.run([*run, "--json", str(file)], check=True, timeout=200)
    (load,), (storm,) = (json.loads(file.read_text())[part] for part in ("load", "storm"))
    assert load["unanswered"] == 0
    assert load["exchanges_per_s"] > 0
    assert load["gateway_us"] > 0
    assert 0 < storm["first_s"] <= storm["half_s"] <= storm["all_s"] < 60
    assert storm["unanswered"] == 0


def test_a_round_is_one_that_a_device_reads() -> None:
    call, reply = greedy_round("text")
    method, (generation, _) = read_call(call)
    assert (method, generation) == ("exchange", "text")
    assert isinstance(read_reply(reply), Answer)


def test_an_answer_that_comes_late_ends_no_gateway() -> None:
    def told(answer: object) -> bool:
        return answer == "news"

    async def run() -> None:
        written = list[bytes]()
        fleet = PipedFleet(SimpleNamespace(write=written.append))  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await within(0.01, fleet.beat(None))  # type: ignore[arg-type]
        fleet.answered(0, "late")
        asked = asyncio.create_task(fleet.beat(None))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        fleet.answered(1, "news")
        fleet.answered(1, "twice")
        assert told(await asked)
        assert len(written) == 2

    asyncio.run(run())


@pytest.mark.parametrize("is_silent", [True, False])
def test_devices_are_driven_on_after_a_call_that_failed(is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "_DEADLINE_S", 0.05)
    asked = list[int]()

    class Link:
        def __init__(self, _: object) -> None: ...

        async def asked(self, *_: object) -> tuple[RelayOutcome, bytes]:
            asked.append(1)
            if len(asked) > 1:
                return RelayOutcome.REPLIED, b""
            if is_silent:
                await asyncio.sleep(60.0)
            raise ConnectionError

        async def disconnect(self) -> None: ...

    monkeypatch.setattr(crowds, "GatewayLink", Link)
    device = SimpleNamespace(gateway=SimpleNamespace(place="here"), incarnation=1)
    driven = asyncio.run(within(30.0, drive([device], 20.0, 0.5)))  # type: ignore[list-item]
    assert driven.unanswered == 1
    assert len(driven.round_s) >= 2


def test_a_checksum_stays_right_when_an_address_is_another() -> None:
    def checksum(packet: bytes) -> int:
        total: int = sum(struct.unpack(f">{len(packet) // 2}H", packet))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return ~total & 0xFFFF

    old, new, rest = socket.inet_aton("10.88.0.2"), socket.inet_aton("10.88.9.201"), bytes(range(40))
    assert _changed(checksum(rest + old), old, new) == checksum(rest + new)

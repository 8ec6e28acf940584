"""The device's process at a gateway: how it is started, how it ends, and what it leaves behind."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from actors.waiting import within
from edge import main
from outrider.wire.dialling import RefusalCode, Refused
from tests.budgets import ROOT
from tests.unit.edge.certificates import Authority, Identity
from tests.unit.edge.gateway import Gateway, refusing

SOON_S = 60.0


async def started(cache: Path, *arguments: str) -> Process:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    command = (sys.executable, "-m", "edge.main", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=cache, env=environment)


def test_it_drafts_until_it_is_told_to_stop_and_forgets_when_it_is_told_to(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def test() -> None:
        async with gateway.listening(authority.server(server)):
            url = f"wss://{gateway.address}"
            process = await started(tmp_path, "--connect", url, "--ca", str(authority.file), "--name", "porch")
            dialled = await gateway.served()
            assert dialled.hello.name == "porch"
            assert process.stdout is not None
            lines = [(await process.stdout.readline()).decode()]
            while f"edge/0 at {gateway.address}\n" not in lines[-1]:
                lines.append((await process.stdout.readline()).decode())
            assert lines[0] == f"no drafter, dialling {gateway.address}\n"
            assert await dialled.call("prove") is None
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
            assert (process.returncode, errors) == (0, b"")
            await dialled.ended.wait()
            assert dialled.said_bye
        (file,) = (tmp_path / "outrider-edge").glob("*.onnx")
        forgetting = await started(tmp_path, "forget")
        told, _ = await forgetting.communicate()
        assert told.decode() == f"removed 1 drafters, 0 MiB, from {file.parent}\n"
        assert not file.exists()

    asyncio.run(within(SOON_S, test()))


def test_a_refusal_for_good_ends_it_with_a_users_error(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    async def test() -> None:
        gateway.answer = refusing(Refused(RefusalCode.REVOKED, "this key was revoked"))
        async with gateway.listening(authority.server(server)):
            process = await started(tmp_path, "--connect", f"wss://{gateway.address}", "--ca", str(authority.file))
            _, errors = await process.communicate()
            assert process.returncode == main.USER_ERROR
            assert errors.decode() == (
                "outrider-edge: error: the gateway refused this device: this key was revoked; ask whoever runs the "
                "gateway, and start it again with a new certificate or key\n"
            )

    asyncio.run(within(SOON_S, test()))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--connect", "ws://a:1"], "--connect needs wss://host:port"),
        (["--connect", "wss://a", "--name", "Ä"], "--name needs at most 64 of a-z, 0-9 and hyphens"),
        (["--connect", "wss://a", "--threads", "0"], "--threads needs 1..1024"),
        (["--connect", "wss://a", "--key-file", "/missing"], "--key-file needs a file with a device key"),
        (["--connect", "wss://a", "--ca", "/missing"], "--ca, --cert, --key needs certificates"),
        (["--connect", "wss://a", "--cert", "/missing"], "--cert, --key needs both or neither"),
    ],
)
def test_what_cannot_be_meant_is_told_at_once(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == main.USER_ERROR
    assert capsys.readouterr().err.startswith(f"outrider-edge: error: {told}")

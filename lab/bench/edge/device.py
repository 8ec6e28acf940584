"""The device's distribution in a fresh virtual environment: its size, its start, its memory."""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from actors.coordinator.drafter_replies import checked_answer
from actors.coordinator.socket_transport import SocketDrafterTransport
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.protocols.registry import PLAINEST
from outrider.session.session import CoordinatorSession

_EDGE = Path(__file__).parents[3] / "edge" / "wheel"
_DEADLINE_S = 30.0
_PROMPT = tuple(range(500, 564))
_WINDOW = 8


@dataclass(frozen=True, slots=True)
class Installed:
    packages: tuple[str, ...]  # names and versions, without those that install
    megabytes: float  # of the environment's packages, without those that install


@dataclass(frozen=True, slots=True)
class Started:
    first_draft_s: float  # from exec to the first draft in the coordinator's hands
    token_ids: tuple[int, ...]
    peak_megabytes: float  # resident, once it has drafted
    resident_megabytes: float


def installed(folder: Path) -> Installed:
    """Build the wheel and install it in ``folder``."""
    _pip(Path(sys.executable), "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(_EDGE))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    _pip(
        Path(sys.executable),
        "--python",
        str(python),
        "install",
        "--no-compile",
        *map(str, folder.glob("outrider_edge-*.whl")),
    )
    listed = _pip(Path(sys.executable), "--python", str(python), "list", "--format", "freeze")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    size = sum(file.lstat().st_size for file in packages.rglob("*") if file.is_file())
    return Installed(tuple(listed.split()), size / 1e6)


async def started(folder: Path, drafter: Path, vocab_size: int) -> Started:
    """Start the installed device and let it draft once for a coordinator's session."""
    address, settings = folder / "edge.sock", folder / "edge.toml"
    settings.write_text(f'drafter = "{drafter}"\nlisten = "{address}"\n', encoding="utf-8")
    began_at_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        str(folder / "venv" / "bin" / "outrider-edge"), "--config", str(settings), stdout=asyncio.subprocess.DEVNULL
    )
    transport = SocketDrafterTransport("device", lambda: _connected(str(address)))
    try:
        token_ids = await drafted(transport, vocab_size)
        first_draft_s = time.monotonic() - began_at_s
        return Started(first_draft_s, token_ids, *_memory(process.pid))
    finally:
        await transport.disconnect()
        process.terminate()
        await process.wait()


def _memory(pid: int) -> tuple[float, float]:
    """Return the megabytes of a process, at most so far and now."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    peak, now = (int(status.partition(f"{name}:")[2].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "VmRSS"))
    return peak, now


async def drafted(transport: SocketDrafterTransport, vocab_size: int) -> tuple[int, ...]:
    """Open a generation at a device and return what it drafts in one round."""
    await transport.greet(_DEADLINE_S)
    wire = WireFormat(vocab_size)
    session = CoordinatorSession(wire, "first")
    opening = OpenGeneration("first", _PROMPT, SamplingParams(temperature=0.0))
    await transport.called("open", opening, DraftTerms(wire), deadline_s=_DEADLINE_S)
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, _PROMPT)
    request = DraftRequest("first", 0, len(_PROMPT), (), prefix_hash, DraftPlan(PLAINEST, _WINDOW))
    order = session.encode_order(request)
    answer = checked_answer("device", await transport.called("exchange", "first", order, deadline_s=_DEADLINE_S))
    draft = session.decode_answer(answer.data, request)
    assert isinstance(draft, Draft)
    transport.close("first")
    return draft.token_ids


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(address)


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

"""The device's wheel among numpy, onnxruntime and websockets alone drafts for the product's own session."""

import asyncio
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.requests import SamplingParams
from outrider.engines.onnx.export import export_drafter
from outrider.session.session import CoordinatorSession
from tests.budgets import ROOT
from tests.unit.actors.coordinator.socket_client import SocketClient
from tests.unit.engines.conftest import loaded, tiny_llama
from tests.unit.engines.drafter.test_frequent_head import proposing_some
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device

NEEDED = ("numpy", "onnxruntime", "websockets", "flatbuffers", "protobuf", "packaging")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment's, with the wheel and links to what it needs."""
    folder = tmp_path_factory.mktemp("device")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(ROOT / "edge" / "wheel")], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("outrider_edge-*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    for name in NEEDED:
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] not in ("..", "bin")}:
            place = packages / top
            if top.startswith("__pycache__") or place.exists():
                continue
            place.symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def listening(python: Path, tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Start a device with a drafter's file; returns its socket."""
    started: list[subprocess.Popen[bytes]] = []

    def start(drafter: Path) -> Path:
        address, settings = tmp_path / "edge.sock", tmp_path / "edge.toml"
        digest = hashlib.sha256(drafter.read_bytes()).hexdigest()
        settings.write_text(f'drafter = "{drafter}"\nlisten = "{address}"\nsha256 = "{digest}"\n', encoding="utf-8")
        command = [str(python), "-I", "-m", "edge.main", "--config", str(settings)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path))
        return address

    yield start
    for process in started:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_the_environment_has_nothing_else(python: Path) -> None:
    code = "import edge.main, sys; assert not {'torch', 'ray', 'pydantic', 'transformers'} & set(sys.modules)"
    subprocess.run([str(python), "-I", "-c", code], check=True)
    for name in ("torch", "ray", "pydantic", "transformers", "safetensors"):
        assert subprocess.run([str(python), "-I", "-c", f"import {name}"], check=False, capture_output=True).returncode


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_it_drafts_what_torch_draws_of_the_same_logits(
    params: SamplingParams, listening: Callable[[Path], Path], tmp_path: Path
) -> None:
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx", quantise=False)
    address = listening(tmp_path / "drafter.onnx")

    async def drafted() -> None:
        transport = SocketClient("device", lambda: asyncio.open_unix_connection(address))
        device, session = Device("a", params), CoordinatorSession(TERMS.wire, "a")
        card = await transport.greet(DEADLINE_S)
        assert card.vocab_size == TERMS.wire.vocab_size
        await transport.open(device.opening(), TERMS, DEADLINE_S)
        for accepted in (4, 2, 0):
            request, truth = device.request(4), device.truth(4)
            answer = await transport.exchange("a", session.encode_order(request), DEADLINE_S)
            draft = session.decode_answer(answer.data, request)
            assert isinstance(draft, Draft)
            assert draft.token_ids == truth
            device.tokens += [*truth[:accepted], 7]
        await transport.prove(DEADLINE_S)
        await transport.disconnect()

    asyncio.run(drafted())


def test_another_file_than_configured_is_refused(python: Path, tmp_path: Path) -> None:
    file, settings = tmp_path / "drafter.onnx", tmp_path / "edge.toml"
    export_drafter(loaded(proposing_some(recognised=True)), file)
    settings.write_text(f'drafter = "{file}"\nlisten = "/x"\nsha256 = "{"0" * 64}"\n', encoding="utf-8")
    command = [str(python), "-I", "-m", "edge.main", "--config", str(settings)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, "outrider-edge: error: needs" in ended.stderr) == (2, True)

"""Who loads first, and that nobody waits for ever behind one that hangs or died."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.verifier import actor as verifier
from actors.verifier.actor import VerifierActor
from actors.verifier.load_turn import load_turn
from outrider.assembly.verifiers import verifier_spec
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import ModelConfig
from tests.unit.models.tiny_models import save_model, tiny_model

WAIT_S = 60.0
HOLDS = """
import sys, time
from pathlib import Path
from actors.verifier.load_turn import load_turn
with load_turn(Path(sys.argv[1]), 0.0) as has_turn:
    print(has_turn, flush=True)
    time.sleep(600)
"""


def test_one_has_the_turn_and_the_next_gets_it_when_that_one_is_done(tmp_path: Path) -> None:
    order, holds, may_end = list[str](), threading.Event(), threading.Event()

    def first() -> None:
        with load_turn(tmp_path, WAIT_S) as has_turn:
            assert has_turn
            holds.set()
            may_end.wait(WAIT_S)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert holds.wait(WAIT_S)
    with load_turn(tmp_path, 0.0) as has_turn:
        assert not has_turn, "it goes on all the same"
    may_end.set()
    with load_turn(tmp_path, WAIT_S) as has_turn:
        assert has_turn
        order.append("second")
    thread.join(WAIT_S)
    assert order == ["first", "second"]


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        began_s = time.monotonic()
        with load_turn(tmp_path, 0.2) as has_turn:
            assert not has_turn
        assert time.monotonic() - began_s >= 0.2
        holder.kill()
        with load_turn(tmp_path, WAIT_S) as has_turn:
            assert has_turn


def test_where_there_is_no_folder_everybody_goes_on_at_once(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with load_turn(tmp_path / "none", WAIT_S) as has_turn:
        assert not has_turn
    assert time.monotonic() - began_s < WAIT_S


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("target"), tiny_model("llama", hidden=128)))


def verifier_in(
    folder: Path, target: str, monkeypatch: pytest.MonkeyPatch, *, restarted: bool, kept_s: float = WAIT_S * 10
) -> None:
    monkeypatch.setattr(verifier, "_TURN_KEPT_S", kept_s)
    monkeypatch.setattr(verifier, "_TURN_S", 0.0)
    monkeypatch.setattr(verifier, "write_events", lambda: None)
    monkeypatch.setattr(verifier, "started", lambda: None)
    context = SimpleNamespace(
        was_current_actor_reconstructed=restarted,
        get_temp_dir=lambda: str(folder.parent),
        get_session_name=lambda: folder.name,
    )
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    model = ModelConfig(target, dtype="float32", max_context_tokens=64)
    VerifierActor(verifier_spec(model, VerifierConfig(engine="torch", device="cpu")))


def test_only_a_verifier_that_was_restarted_takes_the_turn(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier_in(tmp_path, target, monkeypatch, restarted=False)
    with load_turn(tmp_path, 0.0) as has_turn:
        assert has_turn
    verifier_in(tmp_path, target, monkeypatch, restarted=True)
    with load_turn(tmp_path, 0.0) as has_turn:
        assert not has_turn, "its responses go on before another one loads"


def test_a_restarted_verifier_gives_the_turn_back(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier_in(tmp_path, target, monkeypatch, restarted=True, kept_s=0.01)
    with load_turn(tmp_path, WAIT_S) as has_turn:
        assert has_turn


def test_a_restarted_verifier_loads_without_a_turn_that_another_keeps(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, "Timer", None)  # there is nothing to give back
    with load_turn(tmp_path, 0.0):
        verifier_in(tmp_path, target, monkeypatch, restarted=True)
    with load_turn(tmp_path, 0.0) as has_turn:
        assert has_turn

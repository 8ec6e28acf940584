"""Planted faults are in every process of a cluster that is told so, and take effect where they are wanted only."""

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.planted.sitecustomize import OVER_RAY

ROOT = Path(__file__).parents[2]
_WITHIN_S = 240
_SCRIPT = """
import asyncio, json, os, socket, threading, time
from dataclasses import replace
from pathlib import Path

import actors.drafter.actor, actors.local_streams, actors.verifier.actor, actors.fleet.fleet, serve_app.ingress.ingress
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Verified
from tests.chaos.planted.sitecustomize import POISON_SEED
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import Client

folder, pid = Path(os.environ["OUTRIDER_CHAOS"]), os.getpid()
engine = torch_verifier(tiny_llama())
good = Client("good", [5, 17, 42], SamplingParams(temperature=0.0))
bad = Client("bad", [5, 17, 42], SamplingParams(temperature=0.0, seed=POISON_SEED))
for client in (good, bad):
    engine.open(client.opening())
(outcome,) = engine.verify([good.block()])
assert isinstance(outcome, Verified), outcome
good.take(good.block(), outcome)
try:
    engine.verify([good.block(), bad.block()])
except RuntimeError as error:
    assert str(error) == "poison"
else:
    raise AssertionError("it was let pass")
assert (folder / f"poisoned-{pid}").stat().st_size == 1
assert actors.verifier.actor.socket_file("an actor") is None, "as between nodes"

(folder / f"hang-{pid}").touch()
verified = []
thread = threading.Thread(target=lambda: verified.append(engine.verify([good.block()])))
thread.start()
while not (folder / f"hung-{pid}").exists():
    time.sleep(0.01)
thread.join(0.3)
assert thread.is_alive() and not verified
(folder / f"hang-{pid}").unlink()
thread.join(60)
assert verified

async def held():
    def asked():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / f"{pid}.sock"))
            return json.loads(client.recv(65536))
    return await asyncio.to_thread(asked)

told = asyncio.run(held())
assert any(name.endswith("held") for name in told["tasks"]), told
assert actors.drafter.actor.DrafterActor.exchange.__qualname__.startswith("_plant_drafter"), "devices can lie"
print("planted")
"""


def test_an_engine_hangs_and_a_pass_fails_as_they_are_told(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(__file__).parent / "planted"), str(ROOT)))
    environment = os.environ | {"OUTRIDER_CHAOS": str(tmp_path), "PYTHONPATH": path}
    (tmp_path / OVER_RAY).touch()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_WITHIN_S,
    )
    assert done.stdout == "planted\n", done.stdout + done.stderr


def test_nothing_is_planted_elsewhere() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OUTRIDER_CHAOS"}
    script = "from outrider.engines.verifier.engine import PagedVerifier; print(PagedVerifier.verify.__qualname__)"
    path = os.pathsep.join((str(Path(__file__).parent / "planted"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=_WITHIN_S,
    )
    assert done.stdout == "PagedVerifier.verify\n"

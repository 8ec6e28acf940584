"""Faults from the inside, planted into every process of a cluster that is started with this folder in PYTHONPATH.

Each process that runs one of our actors is told by files in ``$OUTRIDER_CHAOS`` what is to go wrong in it, and tells by
files that it did, so that what a process did is known when it is gone: an engine hangs while ``hang-PID`` is there
(``hung-PID``), a device lies while ``lie-PID`` is there (``lies-PID``: a byte for each), and any pass with a block of a
poisoned request fails (``poisoned-PID``). What a process holds (tasks, threads) it tells whoever connects to its socket
``PID.sock``.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

POISON_SEED = 6_666_666_666
OVER_RAY = "over-ray"  # the name of a file: coordinators and verifiers speak by Ray alone while it is there
_POLL_S = 0.02


def _told(name: str) -> Path:
    return Path(os.environ["OUTRIDER_CHAOS"]) / f"{name}-{os.getpid()}"


def _note(name: str) -> None:
    with _told(name).open("ab") as file:
        file.write(b".")


def _gate(method: Callable[..., Any]) -> Callable[..., Any]:
    """On the engine's thread: stand still as long as it is wanted."""

    def gated(*args: Any, **kwargs: Any) -> Any:
        import time  # noqa: PLC0415 (as little as may be at the start of each process)

        if _told("hang").exists():
            _note("hung")
            while _told("hang").exists():
                time.sleep(_POLL_S)
        return method(*args, **kwargs)

    return gated


def _plant_verifier(module: ModuleType) -> None:
    engine: Any = module.PagedVerifier
    opened, verified = engine.open, engine.verify
    poisoned: set[str] = set()

    def open_(self: Any, request: Any) -> None:
        if request.params.seed == POISON_SEED:
            poisoned.add(request.generation)
        opened(self, request)

    def verify(self: Any, blocks: Sequence[Any], *rest: Any) -> Any:
        if any(block.generation in poisoned for block in blocks):
            _note("poisoned")
            raise RuntimeError("poison")
        return verified(self, blocks, *rest)

    engine.open, engine.verify = open_, _gate(verify)


def _plant_drafter_engine(module: ModuleType) -> None:
    engine: Any = module.TorchDrafter
    stepped = _gate(engine.step)

    def step(self: Any, *rest: Any) -> list[Any]:
        answers: list[Any] = stepped(self, *rest)
        return [_lie(answer) for answer in answers] if answers and _told("lie").exists() else answers

    engine.step = step


def _lie(answer: Any) -> Any:
    """Other tokens than were drafted, of as many and of the same form."""
    from dataclasses import replace  # noqa: PLC0415 (as above)

    if not getattr(answer, "token_ids", ()) or answer.distribution is not None:
        return answer
    _note("lies")
    return replace(answer, token_ids=tuple((token * 7 + 13) % 49_000 for token in answer.token_ids))


def _plant_drafter(module: ModuleType) -> None:
    actor: Any = module.DrafterActor
    exchanged = actor.exchange

    async def exchange(self: Any, generation: str, order: bytes) -> Any:
        """Every eighth message of a liar is damaged on top."""
        from dataclasses import replace  # noqa: PLC0415 (as above)

        answer = await exchanged(self, generation, order)
        if _told("lie").exists() and len(answer.data) > 4 and answer.data[-1] % 8 == 0:
            _note("lies")
            return replace(answer, data=answer.data[:3] + bytes([answer.data[3] ^ 1]) + answer.data[4:])
        return answer

    actor.exchange = exchange
    _listen()


def _plant_deadlines(module: ModuleType) -> None:
    """Before ``serve_app.coordination.generations`` takes them; a run meets those on both sides of them."""
    module.MUST_USE_DRAFT_DEADLINE_S, module.DRAFTER_OPEN_DEADLINE_S = 20.0, 10.0  # type: ignore[attr-defined]


def _plant_streams(module: ModuleType) -> None:
    """Have no local streams, as between nodes, where that is wanted."""
    if (Path(os.environ["OUTRIDER_CHAOS"]) / OVER_RAY).exists():
        module.socket_file = lambda _: None  # type: ignore[attr-defined]


def _plant_nothing(_: ModuleType) -> None:
    _listen()


def _listen() -> None:
    """Tell whoever asks what this process holds."""
    import threading  # noqa: PLC0415 (as above)

    path = Path(os.environ["OUTRIDER_CHAOS"]) / f"{os.getpid()}.sock"
    if not path.exists():
        threading.Thread(target=_answer, args=(path,), name="census", daemon=True).start()


def _answer(path: Path) -> None:
    import json  # noqa: PLC0415 (as above)
    import socket  # noqa: PLC0415

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(json.dumps(_held()).encode())


def _held() -> dict[str, Any]:
    import asyncio.tasks  # noqa: PLC0415
    import threading  # noqa: PLC0415
    from collections import Counter  # noqa: PLC0415

    tasks: Counter[str] = Counter()
    of_all_loops: Any = getattr(asyncio.tasks, "_all_tasks" if sys.version_info < (3, 12) else "_scheduled_tasks")
    for task in list(of_all_loops):
        if not task.done():
            coroutine = task.get_coro()
            code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "ag_code", None)
            tasks[f"{Path(code.co_filename).parent.name}/{code.co_qualname}" if code else "?"] += 1
    return {"tasks": dict(tasks), "threads": threading.active_count()}


_PLANTS: dict[str, Callable[[ModuleType], None]] = {
    "outrider.engines.verifier.engine": _plant_verifier,
    "outrider.engines.drafter.engine": _plant_drafter_engine,
    "actors.drafter.actor": _plant_drafter,
    "actors.local_streams": _plant_streams,
    "outrider.rounds.rules": _plant_deadlines,
    "actors.verifier.actor": _plant_nothing,
    "actors.fleet.fleet": _plant_nothing,
    "actors.gateway.gateway": _plant_nothing,
    "serve_app.ingress.ingress": _plant_nothing,
}


class _Planting(importlib.abc.MetaPathFinder):
    """Finds our modules as Python does, and changes them once they are executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _PLANTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            _PLANTS[fullname](module)

        loader.exec_module = executed
        return spec


if "OUTRIDER_CHAOS" in os.environ:
    sys.meta_path.insert(0, _Planting())

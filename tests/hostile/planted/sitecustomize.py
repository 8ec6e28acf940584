"""Faults planted into a cluster that has this folder in its PYTHONPATH: devices that lie, a chat template that loops.

``$OUTRIDER_HOSTILE/device.json`` says which actor answers which method in which way; without the file, or where it
names another one, devices are honest. Each spoilt reply is a byte in ``$OUTRIDER_HOSTILE/lies``, so that what was
never asked for is not taken for survived; and each drafter's process is in ``$OUTRIDER_HOSTILE/ACTOR.pid``. Only
replies in plain bytes are spoilt: what untrusted groups send.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_MODULE, _SERVICE, _TOKENIZER = "actors.drafter.actor", "serve_app.api.service", "outrider.models.tokenizer"
_SHORTER = {"BODY_DEADLINE_S": 10.0, "KEYS_RELOAD_S": 1.0}  # constants of the latter
_NOTHING, _ANSWER, _CARD, _HOLDING, _FAILED = 0, 1, 2, 3, 5  # the first byte of a reply
_HANGS_S = 3600.0
LOOPS = "planted_loops"  # a variable that the planted end of the chat template repeats itself by, squared
_LOOPING = (
    "{% if N is defined %}{% for a in range(N | int) %}{% for b in range(N | int) %}{% set c = b %}"
    "{% endfor %}{% endfor %}{% endif %}"
)


def _spoilt(kind: str, size: int, honest: bytes) -> Any:
    """What is sent in the place of an honest reply."""
    import json  # noqa: PLC0415 (as little as may be at the start of each process)

    of_held = bytes([_HOLDING]) + bytes(16)
    made: dict[str, Callable[[], Any]] = {
        "names": lambda: of_held + json.dumps([f"cmpl-{i}-0" for i in range(size)]).encode(),
        "one long name": lambda: of_held + json.dumps(["a" * size]).encode(),
        "long names": lambda: of_held + json.dumps(["a" * 10_000 + str(i) for i in range(size // 10_000)]).encode(),
        "numbers for names": lambda: of_held + json.dumps([1] * size).encode(),
        "lists in lists": lambda: of_held + b"[" * size + b"]" * size,
        "zeros": lambda: honest[:1] + bytes(size),
        "empty": lambda: b"",
        "only its kind": lambda: honest[:1],
        "another kind": lambda: bytes([_ANSWER]) + bytes(8 + size),
        "kind 255": lambda: b"\xff" * size,
        "a long failure": lambda: bytes([_FAILED]) + b"a" * size,
        "lengthened": lambda: honest + bytes(size),
        "a long name of its model": lambda: _card(honest, "name", "a" * size),
        "many ends of text": lambda: _card(honest, "eos_token_ids", list(range(size))),
        "a context of 10^18": lambda: _card(honest, "max_context_tokens", 10**18),
        "no bytes": lambda: ["a"] * size,
    }
    return made[kind]()


def _card(honest: bytes, field: str, value: object) -> bytes:
    import json  # noqa: PLC0415 (as above)

    return honest[:1] + json.dumps({**json.loads(honest[1:]), field: value}).encode()


def _told(method: str) -> dict[str, Any] | None:
    """How this device is to answer a method; None honestly."""
    import json  # noqa: PLC0415 (as above)

    try:
        told: dict[str, Any] = json.loads((Path(os.environ["OUTRIDER_HOSTILE"]) / "device.json").read_text())
    except (OSError, ValueError):
        return None
    return told if told["method"] == method and told["actor"] == _own_name() else None


def _own_name() -> str | None:
    import ray  # noqa: PLC0415 (as above)

    name: str | None = ray.get_runtime_context().get_actor_name()
    return name


def _plant(module: ModuleType) -> None:
    actor: Any = module.DrafterActor
    began, honestly = actor.__init__, actor.carry_out

    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        (Path(os.environ["OUTRIDER_HOSTILE"]) / f"{_own_name()}.pid").write_text(str(os.getpid()))
        began(self, *arguments, **named)

    async def carry_out(self: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        """As calls over Ray and over streams are."""
        import asyncio  # noqa: PLC0415 (as above)

        told = _told(method)
        if told is None:
            return await honestly(self, method, arguments)
        with (Path(os.environ["OUTRIDER_HOSTILE"]) / "lies").open("ab") as file:
            file.write(b".")
        if told["kind"] == "hangs":
            await asyncio.sleep(_HANGS_S)
        if told["kind"] == "late":
            await asyncio.sleep(told["size"] / 1e3)
            return await honestly(self, method, arguments)
        return _spoilt(told["kind"], told["size"], await honestly(self, method, arguments))

    actor.__init__, actor.carry_out = begin, carry_out


def _plant_template(module: ModuleType) -> None:
    """Let every chat template loop as often as a request says: a template is the operator's, its variables are not."""
    found: Any = module
    honestly = found.read_tokenizer

    def read_tokenizer(folder: Path) -> Any:
        tokenizer = honestly(folder)
        if isinstance(tokenizer.chat_template, str):
            tokenizer.chat_template += _LOOPING.replace("N", LOOPS)
        return tokenizer

    found.read_tokenizer = read_tokenizer


class _Planting(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, and changes it once it is executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in (_MODULE, _SERVICE, _TOKENIZER):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            if fullname == _MODULE:
                _plant(module)
            elif fullname == _TOKENIZER:
                _plant_template(module)
            else:
                vars(module).update(_SHORTER)

        loader.exec_module = executed
        return spec


if "OUTRIDER_HOSTILE" in os.environ:
    sys.meta_path.insert(0, _Planting())

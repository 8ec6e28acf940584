"""What a start reads: variables of the environment, keys among them, and the files that these name.

Each is checked by ``outrider config check`` or refused by ``outrider serve``, in a process of its own beside the
service: it has to end soon, by a message that names the setting and never tells a key.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

from tests.hostile.cases import Case, Target
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_WITHIN_S = 90.0  # mostly imports, on a machine that serves meanwhile
_SECRET = "sk-hostile-secret"  # noqa: S105 (no password)
_CHECK, _SERVE = ("config", "check"), ("serve", "--set", "http.port=1")
_KEYS = "OUTRIDER__AUTH__KEYS_FILE"
_LAUGHS = "{a0: &a0 [x], " + ", ".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(12)) + "}"

ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "a value of 120,000 characters": {"OUTRIDER__MODEL__SERVED_NAME": "[" + "a," * 60_000 + "]"},
    "lists in lists": {"OUTRIDER__DRAFTERS": "[" * 100_000},
    "aliases that multiply": {"OUTRIDER__DRAFTERS": _LAUGHS},
    "a tag that runs code": {"OUTRIDER__HTTP__PORT": "!!python/object/apply:os._exit [3]"},
    "a number of base 60 without end": {"OUTRIDER__HTTP__PORT": "1:" * 50_000 + "1"},
    "a number of 100,000 digits": {"OUTRIDER__HTTP__PORT": "9" * 100_000},
    "infinity": {"OUTRIDER__HTTP__PORT": ".inf"},
    "10,000 variables of no setting": {f"OUTRIDER__HTTP__NOBODY{i}": "1" for i in range(10_000)},
    "a path of 30,000 sections": {"OUTRIDER__" + "A__" * 30_000: "1"},
    "a place beyond any list": {"OUTRIDER__DRAFTERS__" + "9" * 5000 + "__COUNT": "1"},
    "digits of another script": {"OUTRIDER__DRAFTERS__\u0667__COUNT": "1"},
    "a line feed in a name": {"OUTRIDER__HTTP__PORT\nX": "1"},
    "no UTF-8": {"OUTRIDER__MODEL__SERVED_NAME\udcff": "\udcff\udcfe"},
    "a section that is a text": {"OUTRIDER__HTTP": "text"},
    "a section of nothing": {"OUTRIDER__HTTP": ""},
    "keys file: zeros without end": {_KEYS: "/dev/zero"},
    "keys file: a process's memory": {_KEYS: "/proc/self/mem"},
    "keys file: a folder": {_KEYS: "/"},
    "keys file: NUL in its name": {_KEYS: '"/tmp/a\\0b"'},
    "keys file: a name of 100,000 characters": {_KEYS: "/" + "a" * 100_000},
    "keys file: a program": {_KEYS: sys.executable},
    "a key with a space": {"OUTRIDER_API_KEY": f"{_SECRET} x"},
    "a key of control characters": {"OUTRIDER_API_KEY": f"{_SECRET}\x1b[2J\x7f"},
    "a key of 100,000 characters": {"OUTRIDER_API_KEY": _SECRET * 6000},
    "vLLM's key, of another script": {"VLLM_API_KEY": f"{_SECRET}\u0661"},
    "a key as a value of a port": {"OUTRIDER__AUTH__API_KEY": _SECRET},
}


def cases() -> Iterator[Case]:
    """Each as one command."""
    for name, environment in ENVIRONMENTS.items():
        keys = any(variable.endswith("_API_KEY") and "__" not in variable for variable in environment)
        yield Case(Family.FILES, f"a start: {name}", _started(environment, _SERVE if keys else _CHECK))


def _started(environment: Mapping[str, str], command: tuple[str, ...]) -> Callable[[Target], Awaitable[Answer]]:
    async def drive(target: Target) -> Answer:
        began_s = time.monotonic()
        checkout = target.service.layout.checkout
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cluster.cli", *command),
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)} | dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=lambda: os.nice(5),
        )
        try:
            async with asyncio.timeout(_WITHIN_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            target.wrong.append(f"it has not ended within {_WITHIN_S:g} s")
            return Answer(200, "", time.monotonic() - began_s)
        said = output.decode(errors="replace")
        if process.returncode != 2:
            target.wrong.append(f"ended with {process.returncode}, not 2: {said[-200:]!r}")
        if "Traceback" in said:
            target.wrong.append(f"a traceback: {said[-200:]!r}")
        if len(said) > 20_000:
            target.wrong.append(f"a message of {len(said)} characters")
        if _SECRET in said:
            target.wrong.append("it tells a key")
        return Answer(200, "", time.monotonic() - began_s, said[:120])

    return drive

"""Operators' files: keys files that are odd, half written, vanished or no files; disks that take no more.

After each the key of somebody who left is taken out of a sound file: within the time between two readings and the
time that is promised on top it opens nothing, whatever the file was before.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from tests.hostile.cases import ANSWER_WITHIN_S, Case, Target
from tests.hostile.promises import Family, Figure
from tests.hostile.raw_http import Answer, ask, head_of
from tests.hostile.service import KEYS, RELOAD_S, keys_text

_HELD_S = 2.5 * RELOAD_S  # how long a file stays odd: it is read at least twice
_GIVE_UP_S = 30.0
_POLL_S = 0.1
_UNAUTHORIZED = 401
Change = Callable[[Path], object]

_SOUND = keys_text(*KEYS)
_LAUGHS = "a: &a0 [x]\n" + "\n".join(f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(12))
TEXTS: Mapping[str, bytes] = {
    "an impossible date": (_SOUND + "- {name: x, key: 2026-13-45}\n").encode(),
    "a date that overflows": (_SOUND + "since: 99999-01-01 00:00:00\n").encode(),
    "0x without digits": (_SOUND + "- {name: x, key: 0x_}\n").encode(),
    "a number of base 60 without end": (_SOUND + "n: " + "1:" * 20_000 + "1\n").encode(),
    "lists in lists, 100,000": b"keys: " + b"[" * 100_000,
    "aliases that multiply": (_LAUGHS + "\n" + _SOUND).encode(),
    "an alias to itself": b"keys: &a [*a]\n",
    "a merge of merges": b"a: &a {<<: *a}\n" + _SOUND.encode(),
    "a tag that runs code": b"keys: !!python/object/apply:os._exit [3]\n",
    "an unknown tag": b"keys: !!timestamp never\n",
    "empty": b"",
    "null": b"null\n",
    "NUL": _SOUND.encode() + b"\0",
    "UTF-16": _SOUND.encode("utf-16"),
    "no text": bytes(range(256)) * 100,
    "a key twice": (_SOUND + _SOUND.partition("\n")[2]).encode(),
    "two documents": (_SOUND + "---\n" + _SOUND).encode(),
    "32 MiB of a comment": (_SOUND + "#" * 2**25).encode(),
    "5,000 keys": (_SOUND + "".join(f"- {{name: n{i}, key: sk-{i:020}}}\n" for i in range(5000))).encode(),
    "half": _SOUND.encode()[: len(_SOUND) // 2],
}
_SHORT = frozenset({"an impossible date", "half"})


def _vanishes(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _swapped(path: Path) -> None:
    """A link as mounted secrets have, which points to a sound file, to nothing, and to a sound one again."""
    sound = path.with_suffix(".sound")
    sound.write_text(_SOUND)
    for number in range(12):
        new = path.with_suffix(f".{number}")
        new.symlink_to(sound if number % 2 == 0 else "nothing")
        new.replace(path)
        time.sleep(_HELD_S / 12)


def _byte_by_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate()
        for byte in _SOUND.encode():
            file.write(bytes([byte]))
            file.flush()
            time.sleep(2 * _HELD_S / len(_SOUND))


def _from_behind(path: Path) -> None:
    """Cut shorter and shorter."""
    for length in range(len(_SOUND), 0, -4):
        os.truncate(path, length)
        time.sleep(8 * _HELD_S / len(_SOUND))


CHANGES: Mapping[str, Change] = {
    "vanishes": _vanishes,
    "a folder": _folder,
    "a FIFO": _fifo,
    "a link to itself": lambda path: _link(path, path.name),
    "a link to zeros without end": lambda path: _link(path, "/dev/zero"),
    "a link to a terminal": lambda path: _link(path, "/dev/tty"),
    "links that are swapped": _swapped,
    "written byte by byte": _byte_by_byte,
    "cut byte by byte": _from_behind,
}
_DISKS = {"ingress": "logs of the ingress", "lab": "round logs of a device", "coordinator": "logs of the coordinator"}


def cases() -> Iterator[Case]:
    """Each for as long as it takes to be read twice, and a revocation behind it."""
    for name, text in TEXTS.items():
        yield Case(Family.FILES, f"keys file: {name}", _odd(_written(text)), name in _SHORT)
    for name, change in CHANGES.items():
        yield Case(Family.FILES, f"keys file: {name}", _odd(change))
    for kind, name in _DISKS.items():
        yield Case(Family.FILES, f"a disk that takes no more: {name}", _full(kind))


def _written(text: bytes) -> Change:
    return lambda path: path.write_bytes(text)


def _odd(change: Change) -> Callable[[Target], Awaitable[Answer]]:
    async def drive(target: Target) -> Answer:
        path = target.service.layout.keys_file
        try:
            await asyncio.to_thread(change, path)
            await asyncio.sleep(_HELD_S)
            answer = await _asked(target, "mallory")
            if answer.status == _UNAUTHORIZED:
                target.wrong.append("keys that are in the last sound file open nothing")
        finally:
            await asyncio.to_thread(_put, path, keys_text("alice", "mallory"))
        began_s = time.monotonic()
        revoked = await _becomes(target, _UNAUTHORIZED)
        target.figures[Figure.REVOKED_S] = max(0.0, time.monotonic() - began_s - RELOAD_S)
        if not revoked:
            target.wrong.append(f"a key that was revoked opens still after {_GIVE_UP_S:g} s")
        await asyncio.to_thread(_put, path, _SOUND)
        if not await _becomes(target, 200):
            target.wrong.append(f"a key that was given is not known after {_GIVE_UP_S:g} s")
        return answer

    return drive


def _put(path: Path, text: str) -> None:
    """A sound file at once, whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def _asked(target: Target, name: str) -> Answer:
    return await ask(target.port, [head_of("/v1/models", KEYS[name], None, "GET")], ANSWER_WITHIN_S)


async def _becomes(target: Target, status: int) -> bool:
    give_up_at_s = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < give_up_at_s:
        if (await _asked(target, "leaver")).status == status:
            return True
        await asyncio.sleep(_POLL_S)
    return False


def _full(kind: str) -> Callable[[Target], Awaitable[Answer]]:
    async def drive(target: Target) -> Answer:
        target.service.bound_files(kind, 0)
        try:
            for _ in range(20):
                await _asked(target, "mallory")
                await asyncio.sleep(0.2)
            return await _asked(target, "mallory")
        finally:
            target.service.bound_files(kind, -1)

    return drive

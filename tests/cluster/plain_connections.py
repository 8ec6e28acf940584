"""Clients on plain sockets: steady, slow to read, never completing their request, or silent."""

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice

from cluster.options import key_headers, own_api_key

_SLOW_BUFFER_BYTES = 2048  # the kernel's, at the slow reader
_SLOW_PART_BYTES, _SLOW_PAUSE_S = 512, 0.25
_PART_BYTES = 65_536


class Kind(StrEnum):
    """Behaviour of a client."""

    STEADY = "steady"
    SLOW = "slow"  # reads its response at 2 KB/s
    STALLED = "stalled"  # sends half a body
    IDLE = "idle"  # sends nothing


class Outcome(StrEnum):
    """Fate of its connection."""

    SERVED = "served"  # to the end
    REFUSED = "refused"  # with 429
    FAILED = "failed"  # with another status, or an error on the way
    CLOSED = "closed"  # by the service, before an answer
    SILENT = "silent"  # no answer and no close within the time limit


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client saw; times in seconds since it opened its connection."""

    kind: Kind
    outcome: Outcome
    first_byte_s: float | None
    ended_s: float
    detail: str = ""


MIX: Mapping[Kind, int] = {Kind.STEADY: 14, Kind.SLOW: 4, Kind.STALLED: 1, Kind.IDLE: 1}  # of twenty


def kinds(number: int) -> list[Kind]:
    """Kinds of ``number`` clients of the mix."""
    return list(islice(cycle([kind for kind, share in MIX.items() for _ in range(share)]), number))


async def answers(host: str, port: int, body: Mapping[str, object], number: int, within_s: float) -> list[Answer]:
    """Run all clients at once; each waits at most ``within_s`` seconds."""
    return await asyncio.gather(*(_answer(host, port, kind, body, within_s) for kind in kinds(number)))


def counted(found: Sequence[Answer]) -> dict[str, dict[str, int]]:
    return {kind: dict(Counter(each.outcome for each in found if each.kind is kind)) for kind in MIX}


def unfair(found: Sequence[Answer]) -> list[Answer]:
    """Clients that were neither served nor refused, and non-clients that kept their connection."""
    asks = (Kind.STEADY, Kind.SLOW)
    fair = {
        kind: {Outcome.SERVED, Outcome.REFUSED} if kind in asks else {Outcome.CLOSED, Outcome.FAILED} for kind in MIX
    }
    return [each for each in found if each.outcome not in fair[each.kind]]


async def _answer(host: str, port: int, kind: Kind, body: Mapping[str, object], within_s: float) -> Answer:
    began_s, first_s, content = time.monotonic(), None, b""
    outcome, detail, writer = Outcome.SILENT, "", None
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await _connected(host, port, kind)
            writer.write(_request(host, port, kind, body))
            await writer.drain()
            while part := await reader.read(_SLOW_PART_BYTES if kind is Kind.SLOW else _PART_BYTES):
                first_s = first_s or time.monotonic() - began_s
                content = (content + part)[-2 * _PART_BYTES :]
                if kind is Kind.SLOW:
                    await asyncio.sleep(_SLOW_PAUSE_S)
                if content.endswith(b"0\r\n\r\n") or _is_whole(content):
                    break
        outcome, detail = _outcome(content)
    except TimeoutError:
        detail = repr(content[-100:])
    except OSError as error:
        outcome, detail = Outcome.CLOSED if not content else Outcome.FAILED, repr(error)
    finally:
        if writer is not None:
            writer.close()
    return Answer(kind, outcome, first_s, time.monotonic() - began_s, detail)


async def _connected(host: str, port: int, kind: Kind) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    sock.setblocking(False)
    limit = _PART_BYTES
    if kind is Kind.SLOW:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER_BYTES)
        limit = _SLOW_PART_BYTES
    await asyncio.get_running_loop().sock_connect(sock, (host, port))
    return await asyncio.open_connection(sock=sock, limit=limit)


def _request(host: str, port: int, kind: Kind, body: Mapping[str, object]) -> bytes:
    if kind is Kind.IDLE:
        return b""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in key_headers(own_api_key()).items())
    whole = head.encode() + f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content
    return whole[: -len(content) // 2] if kind is Kind.STALLED else whole


def _is_whole(content: bytes) -> bool:
    """Whether an answer with a content length is complete."""
    head, divider, rest = content.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(divider and lengths and len(rest) >= int(lengths[0]))


def _outcome(content: bytes) -> tuple[Outcome, str]:
    if not content:
        return Outcome.CLOSED, ""
    if b"data: [DONE]" in content and b'"error"' not in content:
        return Outcome.SERVED, ""
    status = content[:12].rpartition(b" ")[2]
    return (Outcome.REFUSED, "") if status == b"429" else (Outcome.FAILED, repr(content[:200]))

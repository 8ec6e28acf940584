"""Heads of requests: how many headers, how large, told twice, in no encoding; lengths and codings that do not hold."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.hostile.cases import ANSWER_WITHIN_S, MODEL, Case, Target
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer, ask, head_of

_BODY = b'{"model":"' + MODEL.encode() + b'","prompt":"a","max_tokens":1}'
_ROUTE = "/v1/completions"
_PARTS = 64
Bytes = Callable[[str], Iterable[bytes]]  # of the key


def _headers(*lines: str) -> Bytes:
    """A sound request with more lines in its head."""
    return lambda key: [head_of(_ROUTE, key, len(_BODY), more=lines), _BODY]


def _without_length(lines: str, *body: bytes) -> Bytes:
    """A request whose length is told by other lines; ``body`` is sent in parts."""
    return lambda key: [head_of(_ROUTE, key, None, more=lines.split("\n")), *body]


def _raw(head: bytes) -> Bytes:
    return lambda key: [head.replace(b"KEY", key.encode())]


def _chunked(parts: Iterable[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()  # 256 MiB in one


def _gzip_of(name: bytes = b"", empty_blocks: int = 0) -> bytes:
    """A body in gzip whose head has a name, and with blocks of nothing before what it holds."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = b"\x00\x00\x00\xff\xff" * empty_blocks + packer.compress(_BODY) + packer.flush()
    head = b"\x1f\x8b\x08" + (b"\x08" if name else b"\x00") + bytes(4) + b"\x00\x03" + (name + b"\x00" if name else b"")
    return head + deflated + zlib.crc32(_BODY).to_bytes(4, "little") + len(_BODY).to_bytes(4, "little")


def _versioned(version: str, fields: bytes, *lines: str) -> Bytes:
    """A request in another version of HTTP."""

    def made(key: str) -> list[bytes]:
        body = _BODY[:-1] + fields + b"}"
        return [head_of(_ROUTE, key, len(body), more=lines).replace(b"HTTP/1.1", version.encode(), 1), body]

    return made


def _encoded(coding: str, content: Callable[[], bytes]) -> Bytes:
    def made(key: str) -> list[bytes]:
        body = content()
        return [head_of(_ROUTE, key, len(body), more=[f"Content-Encoding: {coding}"]), body]

    return made


_CHUNKS = "Transfer-Encoding: chunked"
HEADS: Mapping[str, Bytes] = {
    **{
        f"an absurd {name}": _headers(f"{name}: {value}")
        for name, value in (
            ("x-llm-d-slo-tpot-ms", "1e400"),
            ("x-llm-d-slo-ttft-ms", "9" * 5000),
            ("x-llm-d-inference-objective", "o" * 60_000),
            ("x-llm-d-inference-fairness-id", "f" * 60_000),
        )
    },
    **{
        f"{name}: {value or 'nothing'}": _headers(f"{name}: {value}")
        for name in ("x-llm-d-slo-tpot-ms", "x-llm-d-slo-ttft-ms", "x-slo-tpot-ms")
        for value in ("-1", "nan", "inf", "0", "", "1e-320", "0x10", "1_0", "\u0661\u0660")
    },
    "x-llm-d-slo-ttft-ms twice": _headers("x-llm-d-slo-ttft-ms: 100", "x-llm-d-slo-ttft-ms: 200"),
    "x-llm-d-slo-ttft-ms against its older name": _headers("x-llm-d-slo-ttft-ms: 100", "x-slo-ttft-ms: 200"),
    "90 objectives": _headers(*(f"x-llm-d-inference-objective: o{i}" for i in range(90))),
    "90 fairness ids": _headers(*(f"x-llm-d-inference-fairness-id: f{i}" for i in range(90))),
    "a fairness id above 127": _headers("x-llm-d-inference-fairness-id: \udcff\udcfe\udc80"),
    "5,000 of llm-d's": _headers(*(f"x-llm-d-{i}: a" for i in range(5000))),
    "llm-d's refusal, from a client": _headers("x-llm-d-request-dropped-reason: none", "x-outrider-ignored: a"),
    "100 headers": _headers(*(f"X-{i}: a" for i in range(100))),
    "5,000 headers": _headers(*(f"X-{i}: a" for i in range(5000))),
    "50,000 headers": _headers(*(f"X-{i}: a" for i in range(50_000))),
    "5,000 of one name": _headers(*("X-Same: a" for _ in range(5000))),
    "70 KiB in one": _headers("X-Long: " + "a" * 70_000),
    "1 MiB in one": _headers("X-Long: " + "a" * 2**20),
    "16 MiB in one": _headers("X-Long: " + "a" * 2**24),
    "a name of 1 MiB": _headers("X-" + "a" * 2**20 + ": a"),
    "a path of 64 KiB": lambda key: [head_of("/" + "a" * 65_536, key, None, "GET")],
    "a path of 4 MiB": lambda key: [head_of("/" + "a" * 2**22, key, None, "GET")],
    "a query of 60 KiB": lambda key: [head_of("/v1/models?" + "&".join(["a=1"] * 15_000), key, None, "GET")],
    "a model of 60 KiB in the path": lambda key: [head_of("/v1/models/" + "%61" * 20_000, key, None, "GET")],
    "a method of 60 KiB": lambda key: [head_of(_ROUTE, key, len(_BODY), "P" * 60_000), _BODY],
    "Host twice": _headers("Host: evil.example"),
    "no Host": _raw(b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer KEY\r\n\r\n"),
    "Host of 60 KiB": _raw(b"GET /v1/models HTTP/1.1\r\nHost: " + b"a" * 60_000 + b"\r\n\r\n"),
    "Content-Length twice": _headers("Content-Length: 3"),
    "Content-Length -1": _without_length("Content-Length: -1", _BODY),
    "Content-Length 10^30": _without_length("Content-Length: 1" + "0" * 30, _BODY),
    "Content-Length of 60,000 digits": _without_length("Content-Length: " + "9" * 60_000, _BODY),
    "Content-Length +5": _without_length("Content-Length: +5", _BODY),
    "Content-Length 0x10": _without_length("Content-Length: 0x10", _BODY),
    "Content-Length 10^9 with early end": _without_length("Content-Length: 1000000000", _BODY),
    "chunked and Content-Length": _headers(_CHUNKS),
    "xchunked": _without_length("Transfer-Encoding: xchunked", _BODY),
    "chunked twice": _without_length(f"{_CHUNKS}, chunked", _chunked([_BODY]), b"0\r\n\r\n"),
    "chunked behind identity": _without_length("Transfer-Encoding: identity, chunked", _chunked([_BODY]), b"0\r\n\r\n"),
    "chunks of one byte, 500,000": _without_length(
        _CHUNKS, *([_chunked([b" "] * 8192)] * _PARTS), _chunked([_BODY]) + b"0\r\n\r\n"
    ),
    "a chunk of 2^60": _without_length(_CHUNKS, b"1000000000000000\r\n" + _BODY),
    "a chunk's size of 60,000 digits": _without_length(_CHUNKS, b"0" * 60_000 + b"5\r\n"),
    "a chunk's extension of 4 MiB": _without_length(
        _CHUNKS, b"1;a=" + b"b" * 2**22 + b"\r\n \r\n" + _chunked([_BODY]) + b"0\r\n\r\n"
    ),
    "trailers of 4 MiB": _without_length(_CHUNKS, _chunked([_BODY]) + b"0\r\n" + b"X-T: a\r\n" * 500_000 + b"\r\n"),
    "chunks without end": _without_length(_CHUNKS, *([_chunked([b" " * 65_536])] * 1024)),
    "gzip of 256 MiB": _encoded("gzip", _gzip_bomb),
    "gzip of 100,000 members": _encoded("gzip", lambda: gzip.compress(b" ") * 100_000),
    "gzip cut short": _encoded("gzip", lambda: gzip.compress(_BODY)[:-8]),
    "deflate of zeros": _encoded("deflate", lambda: zlib.compress(bytes(2**26))),
    "gzip within gzip": _encoded("gzip, gzip", lambda: gzip.compress(gzip.compress(_BODY))),
    "gzip within gzip, told once": _encoded("gzip", lambda: gzip.compress(gzip.compress(_BODY))),
    "gzip told twice": _encoded("gzip\r\nContent-Encoding: gzip", lambda: gzip.compress(_BODY)),
    "gzip of nothing": _encoded("gzip", lambda: b""),
    "gzip of nothing, whole": _encoded("gzip", lambda: gzip.compress(b"")),
    "gzip, its first byte": _encoded("gzip", lambda: b"\x1f"),
    "gzip with zeros behind": _encoded("gzip", lambda: gzip.compress(_BODY) + bytes(2**22)),
    "gzip with another sum": _encoded("gzip", lambda: gzip.compress(_BODY)[:-8] + bytes(8)),
    "gzip of a name of 8 MiB": _encoded("gzip", lambda: _gzip_of(b"n" * 2**23)),
    "gzip of a name without end": _encoded("gzip", lambda: _gzip_of(b"n" * 2**28)),
    "gzip of empty blocks, 64 MiB": _encoded("gzip", lambda: _gzip_of(empty_blocks=2**26 // 5)),
    "gzip in chunks of one byte": _without_length(
        f"{_CHUNKS}\nContent-Encoding: gzip",
        _chunked([bytes([byte]) for byte in gzip.compress(_BODY)]) + b"0\r\n\r\n",
    ),
    "gzip of a byte order mark": _encoded("gzip", lambda: gzip.compress(codecs.BOM_UTF8 + _BODY)),
    "br": _encoded("br", lambda: _BODY),
    "zstd, 60 KiB": _encoded("zstd" + "d" * 60_000, lambda: _BODY),
    "a byte order mark": _encoded("identity", lambda: codecs.BOM_UTF8 + _BODY),
    "a million byte order marks": _encoded("identity", lambda: codecs.BOM_UTF8 * 10**6 + _BODY),
    "a byte order mark and nothing": _encoded("identity", lambda: codecs.BOM_UTF8),
    "UTF-16": _encoded("identity", lambda: _BODY.decode().encode("utf-16")),
    "UTF-32": _encoded("identity", lambda: _BODY.decode().encode("utf-32")),
    "100 codings": _encoded(", ".join(["gzip"] * 100), lambda: _BODY),
    "Expect": _headers("Expect: 100-continue"),
    "Expect without a body": _without_length("Expect: 100-continue\nContent-Length: 100"),
    "Expect, chunked, without a body": _without_length(f"Expect: 100-continue\n{_CHUNKS}"),
    "Expect of 4 GiB": _without_length(f"Expect: 100-continue\nContent-Length: {2**32}"),
    "Expect in HTTP/1.0": _versioned("HTTP/1.0", b"", "Expect: 100-continue"),
    "Expect, 1,000 pipelined": lambda key: (
        [head_of(_ROUTE, key, len(_BODY), more=["Expect: 100-continue"]) + _BODY] * 1000
    ),
    "HTTP/1.0": _versioned("HTTP/1.0", b""),
    "HTTP/1.0, streamed": _versioned("HTTP/1.0", b',"stream":true'),
    "HTTP/1.0, kept alive": _versioned("HTTP/1.0", b',"stream":true', "Connection: keep-alive"),
    "HTTP/1.0, chunked": _versioned("HTTP/1.0", b"", _CHUNKS),
    "HTTP/1.0 without Host": _raw(b"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer KEY\r\n\r\n"),
    "HTTP/0.9": _raw(b"GET /health\r\n\r\n"),
    "Upgrade websocket": _headers(
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    ),
    "Upgrade to 90 protocols": _headers("Connection: Upgrade", *(f"Upgrade: p{i}, h2c" for i in range(90))),
    "Upgrade h2c with half of a body": lambda key: [
        head_of(_ROUTE, key, len(_BODY), more=["Connection: Upgrade", "Upgrade: h2c"]),
        _BODY[:20],
    ],
    "Expect of 60 KiB": _headers("Expect: " + "a" * 60_000),
    "Upgrade h2c": _headers(
        "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"
    ),
    "Upgrade h2c, 1,000 pipelined": lambda key: (
        [head_of(_ROUTE, key, len(_BODY), more=["Connection: Upgrade", "Upgrade: h2c"]) + _BODY] * 1000
    ),
    "Upgrade and chunked and Content-Length": _headers("Connection: Upgrade", "Upgrade: h2c", _CHUNKS),
    "HTTP/2 preface": _raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/9.9": _raw(b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n"),
    "TLS": _raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)),
    "zeros, 8 MiB": _raw(bytes(2**23)),
    "line feeds, 8 MiB": _raw(b"\r\n" * 2**22),
    "NUL in a header": _raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: \0\r\n\r\n"),
    "a bare CR": _raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\rX-B: c\r\n\r\n"),
    "a folded header": _raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n c\r\n\r\n"),
    "bytes above 127": _raw(
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\xfe\x80\r\n\r\n"
    ),
    "a key of 60 KiB": _raw(
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + b"k" * 60_000 + b"\r\n\r\n"
    ),
    "Authorization twice": _headers("Authorization: Bearer nobody"),
    "X-Request-Id of 60 KiB": _headers("X-Request-Id: " + "a" * 60_000),
    "traceparent of 60 KiB": _headers("traceparent: " + "0" * 60_000, "tracestate: " + "a=b," * 10_000),
    "SLO headers 10^9": _headers("x-slo-ttft-ms: 1000000000", "x-slo-tpot-ms: 0.0000000001"),
    "SLO headers of 60,000 digits": _headers("x-slo-ttft-ms: " + "9" * 60_000, "x-slo-tpot-ms: nan"),
    "X-Forwarded-For of 10,000 peers": _headers("X-Forwarded-For: " + ", ".join(["10.0.0.1"] * 10_000)),
    "Range and conditions": _headers("Range: bytes=" + ",".join(["0-1"] * 10_000), "If-None-Match: " + "*," * 10_000),
    "Cookie of 60 KiB": _headers("Cookie: " + "a=b; " * 12_000),
    "Accept of 60 KiB": _headers("Accept: " + "a/b;q=0.1," * 6_000),
}
_SHORT = frozenset(
    {
        "5,000 headers",
        "16 MiB in one",
        "a path of 4 MiB",
        "Content-Length of 60,000 digits",
        "chunks of one byte, 500,000",
        "trailers of 4 MiB",
        "gzip of 256 MiB",
        "gzip of a name without end",
        "Expect without a body",
        "X-Forwarded-For of 10,000 peers",
    }
)


_UNFINISHED = frozenset(  # more has to come; none does, and the connection is half closed
    {
        "Content-Length 10^30",
        "Content-Length of 60,000 digits",
        "Content-Length 10^9 with early end",
        "a chunk of 2^60",
        "a chunk's size of 60,000 digits",
        "chunks without end",
        "TLS",
        "zeros, 8 MiB",
        "line feeds, 8 MiB",
        "HTTP/0.9",
        "Expect without a body",
        "Expect, chunked, without a body",
        "Expect of 4 GiB",
        "Upgrade h2c with half of a body",
    }
)


def cases() -> Iterator[Case]:
    """One request each; a connection that ends without an answer is a refusal."""
    for name, made in HEADS.items():
        yield Case(Family.HEADERS, name, _one(made, name in _UNFINISHED), name in _SHORT, may_fail=True)


def _one(made: Bytes, half_close: bool) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        return await ask(target.port, made(target.key), ANSWER_WITHIN_S, half_close=half_close)

    return drive


_HOSTS = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:80",
    "[::ffff:8.8.8.8]",
    "",
    "8.8.8.8",
)


def keyless_cases() -> Iterator[Case]:
    """Names that a page of another site would ask by: a service without keys on loopback refuses them."""
    for host in _HOSTS:
        for path in ("/status", "/v1/models"):
            yield Case(
                Family.KEYLESS, f"Host {host!r} asks for {path}", _by_host(host, path), short=False, may_fail=True
            )


def _by_host(host: str, path: str) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        answer = await ask(target.port, [head], ANSWER_WITHIN_S)
        if not answer.refused:
            target.wrong.append(f"Host {host!r} was answered with {answer.status}; loopback names only")
        return answer

    return drive

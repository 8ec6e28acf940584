"""Accepts devices' connections at a rate, and bounds those of whom it is not known yet whether they may dial.

A TLS handshake costs 2 ms of processor time, so a storm of dials waits in the kernel's queue. A connection that does
not prove in time who it is of is cut off, and one address can have few of them.
"""

import asyncio
import logging
import socket
import ssl
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from actors.gateway.accept_bounds import ADMITTED_PER_S, AcceptBounds
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import ConfigError
from outrider.events import event

_KNOWN_IN_S = 20.0
_HANDSHAKE_S = 10.0
_SETTLE_S = 1.0  # in which files that are being written change
_BACKLOG = 1024

log = logging.getLogger(__name__)


def tls_context(config: GatewayConfig) -> ssl.SSLContext:
    """Return the TLS side of the gateway; a ``ConfigError``: a file of it cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a device that dials again proves anew who it is
    named = {"certificate": config.certificate, "client_ca": config.client_ca}
    field = "certificate"
    try:
        if config.certificate is None:
            raise ConfigError("gateway.certificate", "a PEM file", None)
        context.load_cert_chain(config.certificate, config.private_key)
        if config.client_ca is not None:
            field = "client_ca"
            context.load_verify_locations(config.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # others show a key
    except OSError as error:  # ``ssl.SSLError`` is one
        raise ConfigError(f"gateway.{field}", "a PEM file", f"{named[field]}: {error}") from error
    return context


class DeviceListener:
    """All methods run on one event loop."""

    def __init__(self, config: GatewayConfig) -> None:
        """Read certificates; listen nowhere yet."""
        self._config, self._context = config, tls_context(config)
        self._content = self._files()
        self._cas = WeakKeyDictionary({self._context: self._content[-1]})  # digests of the files that were read
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._shaking = set[asyncio.Task[None]]()
        self._unknown: dict[asyncio.BaseTransport, tuple[str, float]] = {}  # address, and when it was accepted
        self._bounds = AcceptBounds(config.proxies)
        self.port = config.port or 0
        self.failed = 0  # handshakes

    async def start(self, application: web.Application) -> None:
        """Listen. Several gateways of one machine may, at the same port."""
        self._runner = web.AppRunner(application, access_log=None, keepalive_timeout=15.0, shutdown_timeout=1.0)
        await self._runner.setup()
        host, port = self._config.host, self._config.port or 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setblocking(False)
        try:
            listening.bind((host, port))
        except OSError as error:
            listening.close()
            raise ConfigError("gateway.port", f"a free port on {host} ({error.strerror})", port) from error
        listening.listen(_BACKLOG)
        self.port = listening.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept_for_ever(listening))

    async def stop_accepting(self) -> None:
        if self._accepting is not None and self._listening is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
            self._listening.close()

    async def stop(self) -> None:
        await self.stop_accepting()
        if self._runner is not None:
            await self._runner.cleanup()

    def known(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection no more: whose it is is known."""
        if (found := self._unknown.pop(transport, None)) is not None:
            self._bounds.give_back(found[0])

    def believes(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether a connection's certificate was verified by the CAs that are believed now."""
        return self._cas.get(transport.get_extra_info("sslcontext")) == self._content[-1]

    def sweep(self, now_s: float) -> None:
        """Cut off connections that did not prove in time who they are of. Called about once a second."""
        for transport, (_, accepted_at_s) in tuple(self._unknown.items()):
            if transport.is_closing() or now_s - accepted_at_s > _KNOWN_IN_S:
                self.known(transport)
                abort: Any = getattr(transport, "abort", transport.close)
                abort()

    async def reload(self) -> bool:
        """Read certificates again; return whether CAs of devices have changed, so that all have to prove themselves."""
        try:
            content = await asyncio.to_thread(self._files)
            if content == self._content:
                return False
            await asyncio.sleep(_SETTLE_S)
            context = await asyncio.to_thread(tls_context, self._config)
            if content != await asyncio.to_thread(self._files):
                return False
        except (ConfigError, OSError) as error:
            event(log, "certificates_not_read", logging.ERROR, reason=str(error))
            return False
        before, self._content, self._context = self._content, content, context
        self._cas[context] = content[-1]
        event(log, "certificates_read")
        return content[-1] != before[-1]

    def _files(self) -> tuple[bytes, ...]:
        config = self._config
        paths = (config.certificate, config.private_key, config.client_ca)
        return tuple(b"" if path is None else sha256(Path(path).read_bytes()).digest() for path in paths)

    async def _accept_for_ever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:  # too many open files
                event(log, "accepting_failed", logging.ERROR, reason=str(error))
                await asyncio.sleep(1.0)
                continue
            address = str(peer[0])
            if not self._bounds.take(address, loop.time()):
                accepted.close()
                await asyncio.sleep(0)  # others go on, though the kernel's queue is full of such
                continue
            task = asyncio.create_task(self._shake(accepted, address))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)
            await asyncio.sleep(1.0 / ADMITTED_PER_S)

    async def _shake(self, accepted: socket.socket, address: str) -> None:
        loop, runner = asyncio.get_running_loop(), self._runner
        assert runner is not None, "it was started"
        assert runner.server is not None, "it was started"
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(
                runner.server, accepted, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except OSError:  # of TLS, too; strangers must not fill the log
            self.failed += 1
            self._bounds.give_back(address)
            accepted.close()
        else:
            self._unknown[transport] = address, loop.time()

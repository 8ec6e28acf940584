"""A gateway: lets devices in, relays coordinators' calls to them, and tells the fleet who is here."""

import asyncio
import logging
import math
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from actors.gateway.addresses import dialled_address
from actors.gateway.device_server import PING_S, DeviceServer, DrafterFile
from actors.gateway.identities import RELOAD_S, Identities
from actors.gateway.joined_devices import AdmittingFleet, JoinedDevices
from actors.gateway.listener import DeviceListener
from actors.gateway.relay import CoordinatorRelay
from actors.gateway_beats import GatewayBeat, GatewayNews
from actors.gateway_link import RelayOutcome
from actors.proved_streams import SECRET_BYTES, StreamPlace, ray_encrypts
from actors.waiting import within
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import ConfigError, FleetUnavailableError
from outrider.events import event
from outrider.wire.dialling import Refused

BEAT_S = 1.0
_COUNTS_EVERY_S = 5.0  # the fleet is told what devices that draft have carried
_SOON_S = 0.02  # until the fleet is told what cannot wait for the next beat
_FLEET_CALL_S = 40.0
_DRAIN_S = 15.0  # that devices have to move elsewhere
_MOVE_AGAIN_S = 2.0  # they are asked, as the other gateway may not be ready for them yet

_PREPARE_AGAIN_S = 30.0

Files = Callable[[], Awaitable[Mapping[str, DrafterFile]]]
log = logging.getLogger(__name__)


class FleetLink(AdmittingFleet, Protocol):
    async def beat(self, beat: GatewayBeat) -> GatewayNews:
        """Tell the fleet who is here; a ``FleetUnavailableError`` if there is no answer in time."""
        ...


class Gateway:
    """All methods run on one event loop."""

    def __init__(self, name: str, config: GatewayConfig, fleet: FleetLink, host: str) -> None:
        """Read files; listen nowhere yet. ``host`` is where coordinators reach this process.

        Raises:
            ConfigError: a file that the configuration names cannot be used, or Ray's processes speak TLS.
        """
        if ray_encrypts():
            needed = "no port where RAY_USE_TLS is set, as prompts would leave a gateway unencrypted: unset either"
            raise ConfigError("gateway.port", needed, config.port)
        self._name, self._config, self._fleet, self._host = name, config, fleet, host
        self._session, self._secret = random.getrandbits(48), os.urandom(SECRET_BYTES)
        self._soon, self._everything = asyncio.Event(), True
        self._identities, self._listener = Identities(config), DeviceListener(config)
        self.devices = JoinedDevices(fleet, self._soon.set, self._now_s)
        self.files: dict[str, DrafterFile] = {}
        self._server = DeviceServer(self._identities, self.devices, self.files, self._listener)
        self._relay = CoordinatorRelay(self.devices, self._secret)
        self._relaying: asyncio.Server | None = None
        self._working = set[asyncio.Task[None]]()
        self.place: StreamPlace | None = None
        self._counts_due_s = 0.0

    @property
    def port(self) -> int:
        return self._listener.port  # where devices dial

    async def start(self, files: Files) -> None:
        """Listen. ``files`` brings the drafters' files by group, which may take long.

        Until then no device comes in, but of groups whose files are in ``self.files`` already.
        """
        self._relaying = await asyncio.start_server(self._relay.serve, self._host, 0)
        host, port = self._relaying.sockets[0].getsockname()[:2]
        self.place = StreamPlace(host, port, self._secret)
        await self._listener.start(self._server.application())
        event(log, "gateway_listens", gateway=self._name, address=self.address)
        self._begin(self._prepare(files))
        for work in (self._beat_for_ever, self._look_for_ever, self._reload_for_ever):
            self._begin(self._for_ever(work))

    @property
    def address(self) -> str:
        """Return host:port that devices are told to dial."""
        return dialled_address(self._config, self.port)

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        """Relay a call of the fleet's, and return what became of it; ``BUSY`` if nothing has in 40 s.

        The fleet's deadlines are shorter, and this process carries out a bounded number of its calls at a time.
        """
        answered: asyncio.Future[tuple[RelayOutcome, bytes]] = asyncio.get_running_loop().create_future()

        def answer(outcome: RelayOutcome, reply: bytes) -> None:
            if not answered.done():
                answered.set_result((outcome, reply))

        self.devices.ask(incarnation, call, most_bytes, answer)
        try:
            return await within(_FLEET_CALL_S, answered)
        except TimeoutError:
            return RelayOutcome.BUSY, b""

    async def end(self, incarnation: int, last: Refused | None) -> None:
        self.devices.end(incarnation, last)

    async def drain(self, others: tuple[str, ...]) -> None:
        """Let nobody in any more, and have devices dial one of the others, each before it leaves here.

        These may have this one's address, too: behind a balancer, or on one machine.
        """
        self._server.is_draining = True
        self._soon.set()
        await self._listener.stop_accepting()
        moved_at_s, until_s = -math.inf, self._now_s() + _DRAIN_S
        while others and len(self.devices) and (now_s := self._now_s()) < until_s:
            if now_s - moved_at_s >= _MOVE_AGAIN_S:
                self.devices.move(others, "this gateway is stopped")
                moved_at_s = now_s
            await asyncio.sleep(0.1)  # devices leave one by one

    async def stop(self) -> None:
        for task in tuple(self._working):
            task.cancel()
        if self._relaying is not None:
            self._relaying.close()
        self._relay.end()
        self._server.abort_all()
        await self._listener.stop()

    async def _prepare(self, files: Files) -> None:
        while True:
            try:
                self.files.update(await files())
                self._soon.set()
            except Exception:
                log.exception("drafter_file_failed")  # devices are told that it is being prepared, and try again
                await asyncio.sleep(_PREPARE_AGAIN_S)
            else:
                return

    async def _beat_for_ever(self) -> None:
        await self.beat()
        try:
            async with asyncio.timeout(BEAT_S):
                await self._soon.wait()
                await asyncio.sleep(_SOON_S)
        except TimeoutError:
            pass

    async def beat(self) -> None:
        """Tell the fleet what has changed, and turn devices away that are not to be here."""
        assert self.place is not None, "it was started"
        self._soon.clear()
        everything = self._everything
        counts = self._now_s() >= self._counts_due_s
        if counts:
            self._counts_due_s = self._now_s() + _COUNTS_EVERY_S
        rows = self.devices.rows(everything=everything, counts=counts)
        refused = {"handshake": self._listener.failed, **{str(one): n for one, n in self.devices.refused.items()}}
        news = self._name, self._session, self.place, self.address, rows, everything, refused
        try:
            takes_devices = bool(self.files) and not self._server.is_draining
            answer = await self._fleet.beat(GatewayBeat(*news, self._server.connections, takes_devices))
        except FleetUnavailableError:
            self._everything = True
            return
        self._everything = answer.tell_all
        for incarnation, last in answer.ended:
            self.devices.end(incarnation, last)

    async def _look_for_ever(self) -> None:
        await asyncio.sleep(PING_S)
        now_s = self._now_s()
        self._server.ping(now_s)
        self._listener.sweep(now_s)
        self.devices.sweep()

    async def _reload_for_ever(self) -> None:
        await asyncio.sleep(RELOAD_S)
        has_new_ca, _ = await asyncio.gather(self._listener.reload(), self._identities.reload())
        self.devices.revoke(self._identities.is_revoked)
        self._server.sending.cut_off(self._identities.is_revoked)
        now = datetime.now(UTC)
        self.devices.prove_anew(lambda one: one.valid_until is not None and (has_new_ca or one.valid_until < now))

    async def _for_ever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                log.exception("gateway_work_failed")
                await asyncio.sleep(BEAT_S)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

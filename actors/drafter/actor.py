"""Drafter actor: a drafter's host on an edge device that is a node of the Ray cluster.

It is a plain class; the fleet wraps it with ``ray.remote`` and its group's resources.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.util import get_node_ip_address

from actors.drafter.call_listener import CallListener
from actors.drafter.round_log import RoundFiles, RoundLogWriter
from actors.sent_up import SentMeter
from actors.start import started, starting
from actors.tcp_counts import answered
from edge.host import DrafterHost
from outrider.assembly.drafters import build_drafter, log_header
from outrider.assembly.links import link_source
from outrider.config.drafters import LinkConfig
from outrider.contracts.link import Direction
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage
from outrider.engines.kinds import DrafterSpec
from outrider.events import write_events
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkSource
from outrider.wire.replies import Answer, DrafterCard, plain_failure

_PLAIN = frozenset({"card", "prove", "open", "exchange", "probe", "held", "close", "forget", "stream"})


class DrafterActor(DrafterHost):
    """Holds a draft model and the KV of the generations leased to it."""

    _listener: CallListener | None = None

    def __init__(self, spec: DrafterSpec, link: LinkConfig | None = None, index: int = 0) -> None:
        """Load the draft model; tokenizer and token map come from the target's files.

        ``index`` is the drafter's number in its group; it seeds the noise of the emulated link.
        """
        starting()
        # Here, so that the fleet, which only creates this actor, does not import torch.
        from actors.engine_thread import card_of, engine_thread  # noqa: PLC0415

        write_events()
        self._index = index
        self._link = EmulatedLink(link_source(link), index)
        thread = engine_thread(spec.threads, spec.device)
        log = None if spec.log is None else RoundLogWriter()
        built = thread.submit(build_drafter, spec, None if log is None else log.note).result()
        if log is not None and spec.log is not None:
            folder = Path(spec.log.folder).expanduser() / f"{spec.log.group}-{index}"
            log.begin(RoundFiles(folder, spec.log.most_bytes, log_header(spec, built)))
        super().__init__(
            built.engine,
            card_of(DrafterCard, built.facts, built.engine),
            thread,
            may_stop=spec.stopping.stops,
            carry=self._carried,
            sent=SentMeter(answered).look,
        )
        started()

    async def emulate_link(self, source: LinkProfile | None) -> None:
        """Replace the emulated link; None: emulate none."""
        self._link = EmulatedLink(source, self._index)

    async def usage(self) -> KvUsage:
        """Return the engine's use of memory, read on its thread between two steps."""
        found = list[KvUsage]()
        await self._apply(lambda: found.append(self._engine.usage()))
        return found[0]

    async def reply(self, method: str, *arguments: Any) -> bytes:
        """Call a method and return its result or error as plain bytes: callers read nothing else (``plain_handle``)."""
        if method not in _PLAIN:
            return plain_failure(AttributeError(method))
        return await self.carry_out(method, arguments)

    async def stream(self) -> Answer:
        """Return where coordinators may call this process without Ray (``actors.proved_streams``)."""
        self._listener = self._listener or CallListener(self, get_node_ip_address())  # type: ignore[no-untyped-call]
        return Answer((await self._listener.place()).to_bytes(), 0.0)

    async def forget(self, generations: Sequence[GenerationId]) -> None:
        """Close generations that no coordinator has leased any more. Called by the fleet."""
        for generation in generations:
            await self.close(generation)

    async def _carried(self, direction: Direction, bits: int) -> None:
        await self._link.carry(direction, bits)


class EmulatedLink:
    """One device's link in both directions; without a source it has no delay."""

    def __init__(self, source: LinkSource | None, seed: int) -> None:
        self._emulator = None if source is None else LinkEmulator(source, seed)
        self._began_at_s = time.monotonic()

    async def carry(self, direction: Direction, payload_bits: int) -> None:
        """Return once a message of this size has crossed."""
        if self._emulator is None:
            return
        now_s = time.monotonic() - self._began_at_s
        await asyncio.sleep(self._emulator.deliver(direction, payload_bits, now_s) - now_s)

"""Delays messages as an emulated link would; ``outrider.link.emulator`` computes the delays."""

import asyncio
import time

from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.link.trace import LinkSource


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

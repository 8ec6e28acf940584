"""Say what a device does: in one line, never with text or tokens of anybody."""

import os
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import numpy as np

from outrider.contracts.drafting import Draft, DraftAnswer
from outrider.contracts.requests import GenerationId
from outrider.drafting.features import DraftFeatures
from outrider.drafting.recalibration import ChainVerdict
from outrider.engines.onnx.engine import OnnxDrafter

_NOT_KEPT = DraftFeatures(np.ones(1))


class CountingDrafter(OnnxDrafter):
    """Keeps no rows for verdicts, of which only lengths are counted."""

    drafted = 0  # tokens

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        answers = super().step(among)
        self.drafted += sum(len(answer.token_ids) for answer in answers if isinstance(answer, Draft))
        return answers

    def _features(self, *_: object) -> DraftFeatures:
        return _NOT_KEPT


class Verdicts:
    """Accepted tokens, and tokens that were accepted or rejected. Noted in the engine's thread."""

    accepted = tested = 0

    def note(self, _: GenerationId, verdict: ChainVerdict) -> None:
        self.accepted += verdict.accepted
        self.tested += verdict.accepted + verdict.rejected


class StatusLine:
    """Lines of the time since the one before."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``name`` is the draft model's."""
        self._name, self._clock = name, clock
        self._at_s, self._drafted, self._accepted, self._tested = clock(), 0, 0, 0

    def line(self, engine: CountingDrafter, verdicts: Verdicts, generations: int, link: str) -> str:
        """Return what was drafted since the last line, for how many generations, and ``link``: who is connected.

        Of the engine only counters are read: its thread changes the rest meanwhile.
        """
        now_s = self._clock()
        drafted, accepted, tested = engine.drafted, verdicts.accepted, verdicts.tested
        rate = (drafted - self._drafted) / max(now_s - self._at_s, 1e-9)
        tests = tested - self._tested
        share = f"{(accepted - self._accepted) / tests:.2f} accepted" if tests else "none tested"
        self._at_s, self._drafted, self._accepted, self._tested = now_s, drafted, accepted, tested
        return f"{self._name}: {generations} generations, {rate:.1f} tokens/s, {share}, {link}"


def tell_systemd(message: str) -> None:
    """Send ``READY=1`` or ``STATUS=...`` to the service manager, if one started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)

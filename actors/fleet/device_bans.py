"""Which devices may not dial now: those that were turned away, were replaced, or dial too often. Pure."""

import math
from dataclasses import replace

from actors.gateway_beats import DeviceDial
from outrider.tenants.quotas import Bucket
from outrider.wire.dialling import RefusalCode, Refused

REPLACED_S = 60  # until a process that was replaced may dial again
DIALS_PER_MINUTE = 120  # of new processes by one key or certificate; and of a process that is here, again
_MOST_KEPT = 4096  # until those that are over are dropped
_ANY, _NEW = b"", b"new"  # in place of a process: any of a device, and any of an identity's devices that are not here


class DeviceBans:
    def __init__(self) -> None:
        self._bans: dict[tuple[str, bytes], tuple[float, Refused]] = {}  # until when, by device and process
        self._dials: dict[tuple[str, bytes], Bucket] = {}  # by identity and, of one that is here, process

    def ban(self, dial: DeviceDial, last: Refused, pause_s: float, now_s: float) -> None:
        """Let a device not in for a pause, nor by another name; ``last`` says why."""
        self._note((dial.device, _ANY), last, pause_s, now_s)
        self._note((dial.identity, _NEW), last, pause_s, now_s)

    def replaced(self, dial: DeviceDial, now_s: float) -> Refused:
        """Fence a process that a newer one has replaced; return what it is told."""
        last = Refused(RefusalCode.REPLACED, "replaced by a newer process of the same identity", REPLACED_S)
        self._note((dial.device, dial.process), last, REPLACED_S, now_s)
        return last

    def refusal(self, dial: DeviceDial, here: bytes | None, now_s: float) -> Refused | None:
        """Count a dial of a device, of which the process ``here`` is here already; or return why it is too early."""
        keys = (dial.device, _ANY), (dial.device, dial.process), (dial.identity, _NEW)
        for key in keys[: 2 if here is not None else 3]:
            if (ban := self._bans.get(key)) is not None and ban[0] > now_s:
                return replace(ban[1], retry_after_s=max(1, round(ban[0] - now_s)))
        who = dial.identity, here if here == dial.process else _NEW
        if len(self._dials) >= _MOST_KEPT and who not in self._dials:
            self._dials = {name: one for name, one in self._dials.items() if now_s - one.at_s < 60.0}
        bucket = self._dials.setdefault(who, Bucket(DIALS_PER_MINUTE, DIALS_PER_MINUTE, now_s))
        bucket.refill(DIALS_PER_MINUTE, now_s)
        if (wait_s := bucket.wait_s(1)) > 0:
            reason = f"needs at most {DIALS_PER_MINUTE} dials a minute of {dial.identity}"
            return Refused(RefusalCode.TOO_MANY, reason, math.ceil(wait_s))
        bucket.level -= 1
        return None

    def _note(self, key: tuple[str, bytes], last: Refused, pause_s: float, now_s: float) -> None:
        if len(self._bans) >= _MOST_KEPT:
            self._bans = {name: ban for name, ban in self._bans.items() if ban[0] > now_s}
        self._bans[key] = now_s + pause_s, last

"""Checks API keys and their quotas: keys from a file that is reloaded, counts shared by all ingresses.

Every request asks the quotas actor, by a call with a deadline, unless its key already has all its responses at this
ingress. While the actor does not answer, each ingress counts for itself: n ingresses then admit up to n times a key's
quota. A restarted actor has full buckets, which admit one more minute's quota at most. The file is read
by ``serve_app.ingress.keys_in_use``.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, RayError

from actors.waiting import within
from outrider.events import event
from outrider.tenants.keys import Keys, Tenant
from outrider.tenants.quotas import OverQuota, QuotaLimits, QuotaRequest, Quotas, RateLeft
from serve_app.api.gate import uncounted
from serve_app.api.service import AuthSettings, Pass
from serve_app.ingress.keys_in_use import SETTLE_S, KeysInUse

log = logging.getLogger(__name__)
Find = Callable[[], "ActorHandle[Any]"]  # may wait for the cluster's head


@dataclass(frozen=True, slots=True)
class GateTimeouts:
    ask_deadline_s: float = 1.0
    find_deadline_s: float = 10.0
    beat_s: float = 3.0  # well below ``actors.quotas.OWNER_TTL_S``
    settle_s: float = SETTLE_S


class KeyGate:
    """The gate of one ingress. All methods but the constructor run on its event loop."""

    def __init__(self, settings: AuthSettings, find: Find, timeouts: GateTimeouts = GateTimeouts()) -> None:
        """Read the keys; blocks for a second or more, so call it in a thread."""
        self._find, self._timeouts = find, timeouts
        self._owner = uuid.uuid4().hex
        self._own = Quotas()  # used while the actor does not answer
        self._held: dict[str, QuotaRequest] = {}  # admitted requests, and those being asked about
        self._responses = Counter[str]()  # admitted and not ended, by tenant
        self._left: dict[str, Mapping[str, RateLeft]] = {}  # as last told, by tenant
        self._actor: ActorHandle[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # kept, as asyncio itself keeps only weak references
        self.in_use = KeysInUse(settings, timeouts.settle_s)

    @property
    def keys(self) -> Keys:
        return self.in_use.keys

    async def start(self) -> None:
        await self._beat()
        self._begin(self.in_use.reload_for_ever())
        self._begin(self._beat_for_ever())

    async def take(self, settings: AuthSettings) -> None:
        await self.in_use.take(settings)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def enter(self, tenant: Tenant) -> OverQuota | None:
        """Count a request as ``Gate.enter``, as one of no responses."""
        if _rates_of(tenant).none:
            return None
        limits = QuotaLimits(requests_per_minute=tenant.requests_per_minute)
        grant = uuid.uuid4().hex
        answer = await self._asked(tenant, grant, QuotaRequest(tenant.name, 0, 0), limits)
        self._own.settle(self._owner, grant, 0)  # the actor drops it with the next ``renew``, which does not name it
        return answer

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:
        limits = replace(QuotaLimits.of(tenant), requests_per_minute=None)
        if limits.none:
            return uncounted
        over = limits.over_concurrency(self._responses[tenant.name] + asked.responses)
        if over is not None:  # the count over all ingresses is no smaller, so a call could not change the answer
            return over
        grant = uuid.uuid4().hex
        self._held[grant] = asked
        try:
            answer = await self._asked(tenant, grant, asked, limits)
        except BaseException:  # cancelled: the actor may have counted it, so settle it there
            self._over(grant, 0)
            raise
        if answer is not None:
            del self._held[grant]
            return answer
        self._responses[asked.tenant] += asked.responses
        return partial(self._over_counted, grant)

    async def left(self, tenant: Tenant) -> Mapping[str, RateLeft]:
        """What the last answer about the key said: its own request was entered before."""
        return {} if _rates_of(tenant).none else self._left.get(tenant.name, {})

    async def _asked(self, tenant: Tenant, grant: str, asked: QuotaRequest, limits: QuotaLimits) -> OverQuota | None:
        rates = _rates_of(tenant)
        if self._actor is not None:
            try:
                asking: Any = self._actor.ask.remote(self._owner, grant, asked, limits, rates)
                over, left = await within(self._timeouts.ask_deadline_s, asking)
            except (TimeoutError, RayError) as error:
                self._lost(error)
            else:
                self._left[tenant.name] = left
                return cast("OverQuota | None", over)
        now_s = asyncio.get_running_loop().time()
        own = self._own.ask(self._owner, grant, asked, limits, now_s)
        self._left[tenant.name] = self._own.left(tenant.name, rates, now_s)
        return own

    def _over_counted(self, grant: str, tokens: int) -> None:
        if (asked := self._held.get(grant)) is None:  # settled before
            return
        self._responses[asked.tenant] -= asked.responses
        if not self._responses[asked.tenant]:
            del self._responses[asked.tenant]
        self._over(grant, tokens)

    def _over(self, grant: str, tokens: int) -> None:
        self._held.pop(grant, None)
        self._own.settle(self._owner, grant, tokens)
        if self._actor is not None:
            self._actor.settle.remote(self._owner, grant, tokens)

    def _lost(self, error: Exception) -> None:
        if isinstance(error, ActorDiedError):
            self._actor = None
        event(log, "quotas_unreachable", logging.WARNING, reason=type(error).__name__)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._timeouts.beat_s)
            await self._beat()

    async def _beat(self) -> None:
        """Find the actor, if it is not known, and renew what is under way here."""
        try:
            if self._actor is None:
                self._actor = await within(self._timeouts.find_deadline_s, asyncio.to_thread(self._find))
            await within(self._timeouts.ask_deadline_s, self._actor.renew.remote(self._owner, dict(self._held)))
        except (TimeoutError, RayError) as error:
            self._lost(error)
        except Exception:  # without further calls of ``renew`` the actor would drop this ingress's counts
            log.exception("quota_beat_failed")


def _rates_of(tenant: Tenant) -> QuotaLimits:
    return replace(QuotaLimits.of(tenant), concurrent_responses=None)

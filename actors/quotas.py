"""Counts what each API key asks for over all ingresses, in one actor; rounds never wait for it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ray.actor import ActorHandle

from actors.abandoned import end_named, end_when_abandoned
from actors.head_actors import head_actor
from outrider.events import write_events
from outrider.tenants.quotas import OverQuota, QuotaLimits, QuotaRequest, Quotas, RateLeft

QUOTAS_NAME = "quotas-2"  # another one where its methods change; that of an earlier version ends by itself
OWNER_TTL_S = 15.0  # silence after which an ingress's counts end; ingresses renew every few seconds


class QuotasActor:
    """Named actor, one per cluster namespace. After a restart its token buckets are full again.

    It ends once no ingress has called ``renew`` for a minute.
    """

    def __init__(self, namespace: str) -> None:
        write_events()
        self._quotas = Quotas()
        self._told_at_s = time.monotonic()
        end_when_abandoned(lambda: self._told_at_s, lambda: end_named(QUOTAS_NAME, namespace))

    async def ask(
        self, owner: str, grant: str, asked: QuotaRequest, limits: QuotaLimits, rates: QuotaLimits
    ) -> tuple[OverQuota | None, dict[str, RateLeft]]:
        """Count a request as ``Quotas.ask``; also return what is left of the tenant's ``rates``."""
        now_s = asyncio.get_running_loop().time()
        self._quotas.expire(now_s, OWNER_TTL_S)
        answer = self._quotas.ask(owner, grant, asked, limits, now_s)
        return answer, self._quotas.left(asked.tenant, rates, now_s)

    async def settle(self, owner: str, grant: str, tokens: int) -> None:
        self._quotas.settle(owner, grant, tokens)

    async def renew(self, owner: str, held: Mapping[str, QuotaRequest]) -> None:
        self._told_at_s = time.monotonic()
        self._quotas.renew(owner, held, asyncio.get_running_loop().time())


def quotas_handle(namespace: str) -> "ActorHandle[Any]":
    """Return the cluster's actor, created if it does not exist. Call it in a thread."""
    return head_actor(QuotasActor, QUOTAS_NAME, namespace, namespace)

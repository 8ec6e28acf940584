"""How much each tenant may still ask for. Pure: the caller passes ``now_s``, and knows who asks.

Rates are token buckets that hold a minute's worth: in any t minutes no more is let in than t + 1 minutes' worth. A
request's tokens are *estimated* when it asks (its prompt and all it may be answered), and *settled* when it has been
answered; what it did not use is given back. A request that may need more than a whole minute's worth is let in when the
bucket is full, and leaves a debt.

What is under way belongs to an *owner*, an ingress, which says again and again what it holds: its word is the truth,
and one that falls silent holds nothing any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from outrider.tenants.keys import Tenant

_MINUTE_S = 60.0
_CONCURRENT_RETRY_S = 1  # nobody knows when a response will end


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """What one request asks for."""

    tenant: str  # its name
    responses: int  # one for each choice
    tokens: int  # estimated: at most so many


@dataclass(frozen=True, slots=True)
class OverQuota:
    """Why a request may not be answered now."""

    limit: str  # the limit's name, as a key has it
    allowed: float
    asked: float
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Of one tenant; None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrent_responses: int | None = None

    @classmethod
    def of(cls, tenant: Tenant) -> "QuotaLimits":
        """As its key has them."""
        return cls(tenant.requests_per_minute, tenant.tokens_per_minute, tenant.concurrent_responses)

    @property
    def none(self) -> bool:
        """Whether nothing is limited."""
        return self == QuotaLimits()

    def over_concurrency(self, responses: int) -> OverQuota | None:
        """Why so many may not be made at a time, if they may not."""
        most = self.concurrent_responses
        if most is None or responses <= most:
            return None
        return OverQuota("concurrent_responses", most, responses, _CONCURRENT_RETRY_S)


@dataclass(slots=True)
class Bucket:
    """What is left of a rate. Below 0 is a debt."""

    per_minute: float
    level: float
    at_s: float

    def refill(self, per_minute: float, now_s: float) -> None:
        """Time has passed; the rate may be another one since."""
        if per_minute > self.per_minute:  # what was full is full
            self.level += per_minute - self.per_minute
        gained = max(0.0, now_s - self.at_s) * per_minute / _MINUTE_S
        self.level = min(per_minute, self.level + gained)
        self.per_minute, self.at_s = per_minute, max(now_s, self.at_s)

    def wait_s(self, amount: float) -> float:
        """Until so much may be taken: 0 now."""
        return max(0.0, min(amount, self.per_minute) - self.level) * _MINUTE_S / self.per_minute

    def give_back(self, amount: float) -> None:
        """What was taken and not used; less than nothing is a debt."""
        self.level = min(self.per_minute, self.level + amount)


@dataclass(slots=True)
class _Owner:
    heard_at_s: float
    held: dict[str, QuotaRequest] = field(default_factory=dict)  # by grant


class Quotas:
    """Of all tenants. Mutable."""

    def __init__(self) -> None:
        """Everybody's buckets are full."""
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._owners: dict[str, _Owner] = {}

    def ask(self, owner: str, grant: str, asked: QuotaRequest, limits: QuotaLimits, now_s: float) -> OverQuota | None:
        """Let a request in under the name ``grant``, or say why not; nothing is taken then."""
        if (over := limits.over_concurrency(self.under_way(asked.tenant, but=grant) + asked.responses)) is not None:
            return over
        wants = []
        for name, per_minute, amount in (
            ("requests_per_minute", limits.requests_per_minute, 1.0),
            ("tokens_per_minute", limits.tokens_per_minute, float(asked.tokens)),
        ):
            if per_minute is not None:
                bucket = self._bucket(asked.tenant, name, per_minute, now_s)
                if wait_s := bucket.wait_s(amount):
                    return OverQuota(name, per_minute, amount, max(1, ceil(wait_s)))
                wants.append((bucket, amount))
        for bucket, amount in wants:
            bucket.level -= amount
        self._of(owner, now_s).held[grant] = asked
        return None

    def settle(self, owner: str, grant: str, tokens: int) -> None:
        """A request is over, and took so many tokens. One that is not known here changes nothing."""
        known = self._owners.get(owner)
        asked = None if known is None else known.held.pop(grant, None)
        bucket = None if asked is None else self._buckets.get((asked.tenant, "tokens_per_minute"))
        if asked is not None and bucket is not None:
            bucket.give_back(asked.tokens - tokens)

    def renew(self, owner: str, held: Mapping[str, QuotaRequest], now_s: float) -> None:
        """Take an owner's word for what is under way."""
        known = self._of(owner, now_s)
        known.heard_at_s, known.held = now_s, dict(held)

    def expire(self, now_s: float, ttl_s: float) -> None:
        """Forget owners that were silent for so long, and what they held."""
        self._owners = {name: owner for name, owner in self._owners.items() if now_s - owner.heard_at_s <= ttl_s}

    def under_way(self, tenant: str, but: str = "") -> int:
        """Responses that are being made for a tenant."""
        return sum(
            asked.responses
            for owner in self._owners.values()
            for grant, asked in owner.held.items()
            if asked.tenant == tenant and grant != but
        )

    def _of(self, owner: str, now_s: float) -> _Owner:
        return self._owners.setdefault(owner, _Owner(now_s))

    def _bucket(self, tenant: str, name: str, per_minute: float, now_s: float) -> Bucket:
        bucket = self._buckets.setdefault((tenant, name), Bucket(per_minute, per_minute, now_s))
        bucket.refill(per_minute, now_s)
        return bucket

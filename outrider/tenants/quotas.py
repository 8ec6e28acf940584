"""Limit how much each tenant may request. Pure: the caller passes ``now_s`` and identifies the tenant.

Rates are token buckets that hold one minute's amount: in any t minutes at most t + 1 minutes' amount is let in. A
request's tokens are *estimated* when it asks (prompt and longest response) and *settled* when it ends; the unused part
is given back. A request that may need more than a minute's amount is let in when the bucket is full, and leaves a debt.

What is under way belongs to an *owner*, an ingress, which periodically reports what it holds. Its last report is taken
as the truth, and an owner that stays silent holds nothing any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from outrider.tenants.keys import Tenant

_MINUTE_S = 60.0
_CONCURRENT_RETRY_S = 1  # the end of a response is not known


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """One request, as far as quotas count it."""

    tenant: str  # its name
    responses: int  # one for each choice
    tokens: int  # estimate, an upper bound


@dataclass(frozen=True, slots=True)
class OverQuota:
    limit: str  # name of the limit, as in the file of keys
    allowed: float
    asked: float
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class RateLeft:
    """What is left of one rate: how much may be taken at once now, of at most how much, and when it is full again."""

    limit: float
    left: float
    full_in_s: float


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Limits of one tenant; None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrent_responses: int | None = None

    @classmethod
    def of(cls, tenant: Tenant) -> "QuotaLimits":
        return cls(tenant.requests_per_minute, tenant.tokens_per_minute, tenant.concurrent_responses)

    @property
    def none(self) -> bool:
        return self == QuotaLimits()

    def over_concurrency(self, responses: int) -> OverQuota | None:
        """Return why this number of responses may not be active at a time, or None."""
        most = self.concurrent_responses
        if most is None or responses <= most:
            return None
        return OverQuota("concurrent_responses", most, responses, _CONCURRENT_RETRY_S)


@dataclass(slots=True)
class Bucket:
    """What is left of a rate; negative is a debt."""

    per_minute: float
    level: float
    at_s: float

    def refill(self, per_minute: float, now_s: float) -> None:
        """Add what time has brought; the rate may have changed since."""
        if per_minute > self.per_minute:  # a full bucket stays full when its rate rises
            self.level += per_minute - self.per_minute
        gained = max(0.0, now_s - self.at_s) * per_minute / _MINUTE_S
        self.level = min(per_minute, self.level + gained)
        self.per_minute, self.at_s = per_minute, max(now_s, self.at_s)

    def wait_s(self, amount: float) -> float:
        """Return the seconds until ``amount`` may be taken; 0 if it may be now."""
        return max(0.0, min(amount, self.per_minute) - self.level) * _MINUTE_S / self.per_minute

    def give_back(self, amount: float) -> None:
        self.level = min(self.per_minute, self.level + amount)


@dataclass(slots=True)
class _Owner:
    heard_at_s: float
    held: dict[str, QuotaRequest] = field(default_factory=dict)  # by grant


class Quotas:
    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._owners: dict[str, _Owner] = {}

    def ask(self, owner: str, grant: str, asked: QuotaRequest, limits: QuotaLimits, now_s: float) -> OverQuota | None:
        """Let a request in under the name ``grant``, or return why not; then nothing is taken."""
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

    def left(self, tenant: str, limits: QuotaLimits, now_s: float) -> dict[str, RateLeft]:
        rates = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        found = dict[str, RateLeft]()
        for name, per_minute in rates.items():
            if per_minute is not None:
                bucket = self._bucket(tenant, f"{name}_per_minute", per_minute, now_s)
                found[name] = RateLeft(per_minute, max(0.0, bucket.level), bucket.wait_s(per_minute))
        return found

    def settle(self, owner: str, grant: str, tokens: int) -> None:
        """End a request that used ``tokens``. An unknown one changes nothing."""
        known = self._owners.get(owner)
        asked = None if known is None else known.held.pop(grant, None)
        bucket = None if asked is None else self._buckets.get((asked.tenant, "tokens_per_minute"))
        if asked is not None and bucket is not None:
            bucket.give_back(asked.tokens - tokens)

    def renew(self, owner: str, held: Mapping[str, QuotaRequest], now_s: float) -> None:
        """Replace what an owner holds by its report."""
        known = self._of(owner, now_s)
        known.heard_at_s, known.held = now_s, dict(held)

    def expire(self, now_s: float, ttl_s: float) -> None:
        """Forget owners that were silent for longer than ``ttl_s``, and what they held."""
        self._owners = {name: owner for name, owner in self._owners.items() if now_s - owner.heard_at_s <= ttl_s}

    def under_way(self, tenant: str, but: str = "") -> int:
        """Return the number of a tenant's active responses, without those of the grant ``but``."""
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

"""Who may ask, and how much: what the HTTP layer asks before it makes anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from outrider.contracts.requests import GenerationRequest
from outrider.tenants.keys import MAX_KEY_CHARS, Keys, Tenant
from outrider.tenants.quotas import OverQuota, QuotaRequest
from serve_app.api.http_errors import KeyRefusedError, NotAllowedError, OverQuotaError
from serve_app.api.openai.bodies import OutriderOptions
from serve_app.api.peer import LOOPBACK, is_trusted
from serve_app.api.service import Gate, Pass, RequestLimits


class OpenGate:
    """Everybody may ask for anything."""

    keys: Keys | None = None

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:  # noqa: ARG002 (interface)
        """Nobody has a key that could be asked about."""
        raise AssertionError

    async def enter(self, tenant: Tenant) -> OverQuota | None:  # noqa: ARG002 (interface)
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Of a request that nobody counts."""

    def settle(self, tokens: int) -> None: ...


def tenant_of(gate: Gate, headers: Mapping[str, str]) -> Tenant | None:
    """Whose key a request has; None where everybody may ask.

    Raises:
        KeyRefusedError: it has none, or nobody's.
    """
    if gate.keys is None:
        return None
    scheme, _, key = headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise KeyRefusedError("needs an API key, as Authorization: Bearer KEY, found none")
    tenant = gate.keys.tenant_of(key) if len(key) <= MAX_KEY_CHARS else None
    if tenant is None:
        raise KeyRefusedError("needs a known API key, found another one; ask the operator for one")
    return tenant


async def count_request(gate: Gate, tenant: Tenant | None) -> None:
    """Count a request against its key, before anything is done for it: malformed and refused ones count, too.

    Raises:
        OverQuotaError: the key has had its requests.
    """
    if tenant is not None and (answer := await gate.enter(tenant)) is not None:
        raise _over_quota(answer)


async def let_in(gate: Gate, tenant: Tenant | None, requests: Sequence[GenerationRequest], prompt_tokens: int) -> Pass:
    """Count the generations and the tokens of a request against its key.

    Raises:
        OverQuotaError: the key has nothing left for it now.
    """
    if tenant is None:
        return Uncounted()
    tokens = prompt_tokens + sum(request.max_tokens for request in requests)
    answer = await gate.ask(tenant, QuotaRequest(tenant.name, len(requests), tokens))
    if isinstance(answer, OverQuota):
        raise _over_quota(answer)
    return answer


def _over_quota(answer: OverQuota) -> OverQuotaError:
    message = (
        f"this key has {answer.limit}: {answer.allowed:g}, found {answer.asked:g} asked for beyond what it has used; "
        f"try again in {answer.retry_after_s} s"
    )
    return OverQuotaError(message, answer.retry_after_s)


def account_of(tenant: Tenant | None, address: str) -> str:
    """Whose share a request takes: its key's, or where there are no keys that of its client's address. A hash."""
    named = f"address {address}" if tenant is None else f"key {tenant.name}"
    return blake2b(named.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def bodies_account(tenant: Tenant | None, address: str) -> str:
    """Among whose bodies a request's is counted: ``""`` where many clients may have the address."""
    return "" if tenant is None and is_trusted(address, LOOPBACK) else account_of(tenant, address)


def limits_of(tenant: Tenant | None, limits: RequestLimits) -> RequestLimits:
    """What a request of a tenant may ask for."""
    if tenant is None:
        return limits
    allowed = tenant.slo.allowed
    classes = [slo for slo in limits.slo_classes if allowed is None or slo.name in allowed]
    first = tenant.slo.default or (classes[0].name if classes else "")
    groups = limits.drafters
    if tenant.drafters is not None:
        groups = {name: trusted for name, trusted in groups.items() if name in tenant.drafters}
    return replace(
        limits,
        slo_classes=tuple(sorted(classes, key=lambda slo: slo.name != first)),
        drafters=groups,
        restricted=tenant.drafters is not None,
        max_choices=tenant.max_choices,
        tenant=tenant.name,
    )


def check_allowed(
    options: OutriderOptions, tenant: Tenant | None, limits: RequestLimits, everybodys: RequestLimits
) -> None:
    """Refuse what there is, but not for this key.

    Raises:
        NotAllowedError: an SLO class or a drafter group.
    """
    if tenant is None:
        return
    classes = options.slo_class if isinstance(options.slo_class, list) else [options.slo_class or ""]
    for field, named, own, known in (
        ("slo_class", classes, [slo.name for slo in limits.slo_classes], [slo.name for slo in everybodys.slo_classes]),
        ("drafters", options.drafters or (), list(limits.drafters), list(everybodys.drafters)),
    ):
        for name in named:
            if name in known and name not in own:
                needed = f"one of {', '.join(own) or 'none'}, which this key may ask for"
                raise NotAllowedError(f"outrider.{field}", f"outrider.{field} needs {needed}, found {name!r}")

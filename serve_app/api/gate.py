"""Access control: whose key a request has, and whether its quota admits it. The HTTP layer checks before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import ceil, floor

from outrider.contracts.requests import GenerationRequest
from outrider.tenants.keys import MAX_KEY_CHARS, Tenant
from outrider.tenants.quotas import OverQuota, QuotaRequest, RateLeft
from serve_app.api.http_errors import KeyRefusedError, NotAllowedError, OverQuotaError
from serve_app.api.openai.bodies import OutriderOptions
from serve_app.api.peer import LOOPBACK, is_trusted
from serve_app.api.service import Gate, Pass, RequestLimits


def uncounted(_tokens: int) -> None:
    """Nothing: the pass of a request that is not counted."""


def tenant_of(gate: Gate | None, headers: Mapping[str, str]) -> Tenant | None:
    """Return the tenant of a request's key; None if there is no gate, as there are no keys.

    A key in ``Authorization`` goes before one in ``x-api-key``, Anthropic's header.

    Raises:
        KeyRefusedError: the request has no key, or an unknown one.
    """
    if gate is None:
        return None
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    key = (bearer if scheme.lower() == "bearer" else "").strip() or headers.get("x-api-key", "").strip()
    if not key:
        raise KeyRefusedError("needs an API key, as Authorization: Bearer KEY or x-api-key: KEY, found none")
    tenant = gate.keys.tenant_of(key) if len(key) <= MAX_KEY_CHARS else None
    if tenant is None:
        raise KeyRefusedError("needs a known API key, found another one; ask the operator for one")
    return tenant


async def count_request(gate: Gate | None, tenant: Tenant | None) -> None:
    """Count a request against its key before any work: malformed and refused requests count, too.

    Raises:
        OverQuotaError: the key's rate of requests is used up.
    """
    if gate is not None and tenant is not None and (answer := await gate.enter(tenant)) is not None:
        raise _over_quota(answer)


async def let_in(
    gate: Gate | None, tenant: Tenant | None, requests: Sequence[GenerationRequest], prompt_tokens: int
) -> Pass:
    """Count a request's generations and tokens against its key.

    Raises:
        OverQuotaError: the key's quota does not admit it now.
    """
    if gate is None or tenant is None:
        return uncounted
    asked = QuotaRequest(tenant.name, len(requests), asked_tokens(requests, prompt_tokens))
    answer = await gate.ask(tenant, asked)
    if isinstance(answer, OverQuota):
        raise _over_quota(answer)
    return answer


def asked_tokens(requests: Sequence[GenerationRequest], prompt_tokens: int) -> int:
    """Tokens that generations are counted with until they have ended."""
    return prompt_tokens + sum(request.max_tokens for request in requests)


def _over_quota(answer: OverQuota) -> OverQuotaError:
    message = (
        f"this key has {answer.limit}: {answer.allowed:g}, found {answer.asked:g} asked for beyond what it has used; "
        f"try again in {answer.retry_after_s} s"
    )
    return OverQuotaError(message, answer.retry_after_s)


async def rates_left(gate: Gate | None, tenant: Tenant | None) -> Mapping[str, RateLeft]:
    """What is left of a key's rates; empty for a key without."""
    if gate is None or tenant is None or (tenant.requests_per_minute is None and tenant.tokens_per_minute is None):
        return {}
    return await gate.left(tenant)


def rate_headers(rates: Mapping[str, RateLeft], taken_tokens: int = 0) -> dict[str, str]:
    """OpenAI's headers on rates, of which a request has taken so many tokens since."""
    headers, taken = dict[str, str](), {"tokens": taken_tokens}
    for name, rate in rates.items():
        headers[f"x-ratelimit-limit-{name}"] = str(floor(rate.limit))
        headers[f"x-ratelimit-remaining-{name}"] = str(max(0, floor(rate.left - taken.get(name, 0))))
        headers[f"x-ratelimit-reset-{name}"] = _duration(rate.full_in_s)
    return headers


def _duration(seconds: float) -> str:
    """As OpenAI writes it: ``120ms``, ``7.66s``, ``6m0s``."""
    if seconds < 1.0:
        return f"{ceil(seconds * 1e3)}ms"
    minutes, rest = divmod(ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def account_of(tenant: Tenant | None, address: str) -> str:
    """Account to which a request is charged: its key, or without keys its client's address; hashed."""
    named = f"address {address}" if tenant is None else f"key {tenant.name}"
    return blake2b(named.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def bodies_account(tenant: Tenant | None, address: str) -> str:
    """Account to which a request's body is charged: ``""`` if many clients may share the address."""
    return "" if tenant is None and is_trusted(address, LOOPBACK) else account_of(tenant, address)


def limits_of(tenant: Tenant | None, limits: RequestLimits) -> RequestLimits:
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
    """Refuse SLO classes and drafter groups that exist, but not for this key."""
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

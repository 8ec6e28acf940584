"""Check whether a configuration's resource demands fit the nodes of a cluster.

Pure. Ray waits silently for what can never be placed, so this is checked before anything is started.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from serve_app.app import coordinator_bundles, ingress_bundle

Resources = Mapping[str, float]

_ROUNDING = 1e-6  # Ray counts in ten-thousandths


@dataclass(frozen=True, slots=True)
class Claim:
    """Resources that one actor takes of one node; ``field`` of the configuration sets them, or the number of actors."""

    who: str
    field: str
    resources: Resources


def service_claims(config: Config) -> tuple[Claim, ...]:
    """Claims of ingress, coordinators and verifiers: without them there is no service."""
    coordinator, verifier = coordinator_bundles(config.verifiers)
    each = (Claim("coordinator", "verifiers.count", coordinator), Claim("verifier", "verifiers", verifier))
    ingress = Claim("ingress", "ingress.count", ingress_bundle())
    return (*[ingress] * config.ingress.count, *each * config.verifiers.count)


def drafter_claims(config: Config) -> tuple[Claim, ...]:
    """Claims of the drafters; the service works without them."""
    claims = []
    for i, group in enumerate(config.drafters):
        resources = {"CPU": group.num_cpus, "GPU": group.num_gpus, **group.resources}
        claimed = {name: amount for name, amount in resources.items() if amount}
        claims += [Claim(f"drafter of group {group.name}", f"drafters[{i}].count", claimed)] * group.actors
    return tuple(claims)


def misfit(claims: Sequence[Claim], nodes: Sequence[Resources]) -> ConfigError | None:
    """Return an error that says why no placement can satisfy all claims; None does not promise that one can.

    A single claim exceeds every node (given by their total resources), or all together exceed the cluster.
    """
    for claim in claims:
        if not any(_holds(node, claim.resources) for node in nodes):
            return ConfigError(claim.field, f"a node with {written(claim.resources)} for a {claim.who}", _offer(nodes))
    for name in sorted({name for claim in claims for name in claim.resources}):
        claiming = [claim for claim in claims if name in claim.resources]
        needed = sum(claim.resources[name] for claim in claiming)
        found = sum(node.get(name, 0.0) for node in nodes)
        if needed > found + _ROUNDING:
            largest = max(claiming, key=lambda claim: claim.resources[name])
            needs = f"{needed:g} {name} in the cluster for all of {_names(claiming)}"
            return ConfigError(largest.field, f"{needs}: lower it, or add nodes", f"{found:g}")
    return None


def place(claims: Sequence[Claim], nodes: Sequence[Resources]) -> tuple[Claim, ...]:
    """Place claims first-fit, the largest first; return those that fit nowhere."""
    free = [dict(node) for node in nodes]
    homeless = []
    for claim in sorted(claims, key=lambda claim: -sum(claim.resources.values())):
        home = next((node for node in free if _holds(node, claim.resources)), None)
        if home is None:
            homeless.append(claim)
            continue
        for name, amount in claim.resources.items():
            home[name] = home[name] - amount
    return tuple(homeless)


def written(resources: Resources) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items()) or "nothing"


def _holds(node: Resources, claim: Resources) -> bool:
    return all(node.get(name, 0.0) + _ROUNDING >= amount for name, amount in claim.items())


def _offer(nodes: Sequence[Resources]) -> str:
    return "; ".join(sorted({written(node) for node in nodes})) or "no nodes"


def _names(claims: Sequence[Claim]) -> str:
    return ", ".join(sorted({claim.who for claim in claims}))

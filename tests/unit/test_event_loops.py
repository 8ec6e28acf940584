"""What waits for the cluster's head is called in threads: on an event loop it would hold up every response."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_RAY = frozenset({"get_actor", "kill", "get", "wait", "nodes", "put"})
BY_NAME = frozenset(
    {
        *("list_named_actors", "head_actor", "fleet_handle", "application_fleet", "find_fleet", "quotas_handle"),
        *("end_named", "is_earlier"),
    }
)
# Functions that are run in threads, or before anything is served.
ASIDE = frozenset(
    {
        "actors.abandoned.end_named",
        "actors.fleet.drafter_actors.DrafterActors.end_all",
        "actors.fleet.drafter_actors.DrafterActors._running",
        "actors.fleet.actor.FleetActor.__init__.end",
        "actors.fleet.actor.find_fleet",
        "actors.fleet.actor.fleet_handle",
        "actors.fleet.actor.is_earlier",
        "actors.fleet.gateway_actors.GatewayActors._running",
        "actors.fleet.gateway_actors.GatewayActors.end_all",
        "actors.fleet.gateway_actors.RayGatewayCalls.__init__.<lambda>",
        "actors.gateway.actor.GatewayActor.__init__.<lambda>",
        "actors.gateway.actor.RayFleetLink.__init__.<lambda>",
        "actors.quotas.QuotasActor.__init__.<lambda>",
        "actors.quotas.quotas_handle",
        "serve_app.coordination.ray_ports.VerifierPort.__init__",
        "serve_app.fleet_gauges.application_fleet",
    }
)


def waiting_calls(node: ast.AST, where: str) -> Iterator[str]:
    """The functions in which something is called that waits for the head."""
    for child in ast.iter_child_nodes(node):
        name = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{where}.{child.name}"
        elif isinstance(child, ast.Lambda):
            name = f"{where}.<lambda>"
        elif isinstance(child, ast.Call) and waits(child.func):
            yield where
        yield from waiting_calls(child, name)


def waits(called: ast.expr) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id="ray"), attr=attr):
            return attr in OF_RAY
        case ast.Name(id=name):
            return name in BY_NAME
    return False


def test_nothing_on_an_event_loop_waits_for_the_head() -> None:
    found = set()
    for package in ("actors", "edge", "serve_app"):
        for file in (ROOT / package).rglob("*.py"):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found |= set(waiting_calls(ast.parse(file.read_text(encoding="utf-8")), module))
    assert found == ASIDE


def test_a_call_is_seen_wherever_it_is_made() -> None:
    text = "import ray\nasync def f():\n    return [ray.get_actor('x') for _ in y]\ndef g():\n    ray.method(1)\n"
    assert list(waiting_calls(ast.parse(text), "m")) == ["m.f"]

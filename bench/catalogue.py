"""The benchmarks by name. Each is imported only when it runs, so that the command line starts quickly."""

from importlib import import_module

_MODULES = {
    "bookkeeping": "bench.bookkeeping.command",
    "capacity": "bench.capacity.command",
    "clients": "bench.clients.command",
    "connections": "bench.connections.command",
    "engine": "bench.passes.command",
    "engines": "bench.engines.command",
    "exactness": "bench.exactness.command",
    "fleet": "bench.fleet.command",
    "gpu": "bench.gpu.command",
    "load": "bench.load.command",
    "mode_choice": "bench.mode_choice.command",
    "noise": "bench.noise.command",
    "overhead": "bench.load.overhead",
    "paper": "bench.papers.command",
    "protocols": "bench.protocols.command",
    "routing": "bench.routing.command",
    "stops": "bench.stops.command",
    "structured": "bench.structured.command",
    "trees": "bench.trees.command",
}
BENCHES = tuple(_MODULES)


def run(name: str, argv: list[str]) -> None:
    """Run one of ``BENCHES``, which parses its own options."""
    import_module(_MODULES[name]).main(argv)

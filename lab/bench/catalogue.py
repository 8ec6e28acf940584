"""The benchmarks by name. Each is imported only when it runs, so that the command line starts quickly."""

from importlib import import_module

_MODULES = {
    "bookkeeping": "lab.bench.bookkeeping.command",
    "capacity": "lab.bench.capacity.command",
    "clients": "lab.bench.clients.command",
    "edge": "lab.bench.edge.command",
    "engine": "lab.bench.passes.command",
    "engines": "lab.bench.engines.command",
    "exactness": "lab.bench.exactness.command",
    "gateway": "lab.bench.gateway.command",
    "gpu": "lab.bench.gpu.command",
    "load": "lab.bench.load.command",
    "overhead": "lab.bench.load.overhead",
    "paper": "lab.bench.papers.command",
    "protocols": "lab.bench.protocols.command",
    "stops": "lab.bench.stops.command",
}
BENCHES = tuple(_MODULES)


def run(name: str, argv: list[str]) -> None:
    """Run one of ``BENCHES``, which parses its own options."""
    import_module(_MODULES[name]).main(argv)

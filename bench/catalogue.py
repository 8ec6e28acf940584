"""The benchmarks by name. Each is imported when it runs, so that the command line knows their names at once."""

from collections.abc import Callable


def _capacity(argv: list[str]) -> None:
    from bench.capacity.command import main

    main(argv)


def _engine(argv: list[str]) -> None:
    from bench.engines.against_bare import main

    main(argv)


def _engines(argv: list[str]) -> None:
    from bench.engines.command import main

    main(argv)


def _load(argv: list[str]) -> None:
    from bench.load.command import main

    main(argv)


def _overhead(argv: list[str]) -> None:
    from bench.load.overhead import main

    main(argv)


def _paper(argv: list[str]) -> None:
    from bench.papers.command import main

    main(argv)


def _protocols(argv: list[str]) -> None:
    from bench.protocols.command import main

    main(argv)


BENCHES: dict[str, Callable[[list[str]], None]] = {
    "capacity": _capacity,
    "engine": _engine,
    "engines": _engines,
    "load": _load,
    "overhead": _overhead,
    "paper": _paper,
    "protocols": _protocols,
}

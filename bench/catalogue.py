"""The benchmarks by name. Each is imported when it runs, so that the command line knows their names at once."""

BENCHES = ("bookkeeping", "capacity", "engine", "engines", "load", "noise", "overhead", "paper", "protocols", "regime")


def run(name: str, argv: list[str]) -> None:
    """Run one of ``BENCHES``; it reads its own options."""
    match name:
        case "bookkeeping":
            from bench.bookkeeping.command import main
        case "capacity":
            from bench.capacity.command import main
        case "engine":
            from bench.engines.against_bare import main
        case "engines":
            from bench.engines.command import main
        case "load":
            from bench.load.command import main
        case "noise":
            from bench.noise.command import main
        case "overhead":
            from bench.load.overhead import main
        case "paper":
            from bench.papers.command import main
        case "regime":
            from bench.regime.command import main
        case _:
            from bench.protocols.command import main
    main(argv)

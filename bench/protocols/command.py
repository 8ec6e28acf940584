"""``outrider bench protocols``: every protocol side by side on a real cluster with emulated links.

Starts the embedded cluster and emulates links of 1, 20 and 500 Mbps with RTTs of 0 and 50 ms. On each, greedy and at
temperature 1, the same prompts are answered without drafts, by each protocol alone, and by ``cheapest``, which chooses
protocol and window every round. A fixed protocol is held to the plan the service itself chose most often when only the
protocol was named. Methods take turns prompt by prompt; there is one request at a time.

Judged is *charged* time: the link as modelled for the bits really sent, and measured computation (see
``bench.protocols.rounds``). From the same measurements: the whole grid of links under virtual time, and payload bits
per committed token against their limits.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench.protocols.bits import Bits, bits
from bench.protocols.costs import measured_costs
from bench.protocols.figures import Comparison, Figures, compare, figures, seconds
from bench.protocols.grid import GridPoint, grid_cells, grid_point
from bench.protocols.measure import Amount, measure
from bench.protocols.plan import METHODS, NO_DRAFT, Cell, cells
from bench.protocols.plots import plot
from bench.protocols.rounds import Levels, Response, levels
from bench.protocols.tables import print_bits, print_comparisons, print_figures, print_grid, print_levels
from cluster.local import running
from cluster.reports.json_file import write_json
from outrider.config.reading import load_config, override
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.models.registry import load_tokenizer


def main(argv: Sequence[str]) -> None:
    """Run the bench; print its tables, and write figures and plot.

    Raises:
        ConfigError: the configuration has no drafter, or already emulates a link.
    """
    args = _parser().parse_args(argv)
    config = override(load_config(args.config), args.assignments)
    if config.drafter_count == 0 or any(group.link is not None for group in config.drafters):
        raise ConfigError("drafters", "at least one, and link: null (the bench sets the links itself)", config.drafters)
    chosen, amount = cells(args.cells), Amount(args.tokens, args.prompts, args.repeats)
    with running(config) as url:
        found = asyncio.run(_measured(url, config, chosen, amount))
    wire = config.wire.format(len(load_tokenizer(config.model.target)))
    report(found, wire, config, args.entropy, args.out, args.plot)


async def _measured(url: str, config: Config, chosen: Sequence[Cell], amount: Amount) -> list[Response]:
    return [one async for cell in measure(url, config, chosen, amount) for one in cell]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench protocols", description=__doc__)
    add = parser.add_argument
    add("--config", type=Path, default=None, help="needs drafters, and one verifier")
    add("--set", dest="assignments", action="append", default=[], metavar="KEY=VALUE", help="override one field")
    add("--cells", nargs="*", default=[], metavar="NAME", help="beginnings of names such as 20mbps-50ms-t1")
    add("--tokens", type=int, default=20, help="of each response (default: %(default)s)")
    add("--prompts", type=int, default=4, help="different ones in each cell (default: %(default)s)")
    add("--repeats", type=int, default=1, help="of each prompt by each method (default: %(default)s)")
    add("--entropy", type=float, default=None, metavar="BITS", help="of the draft's distribution at temperature 1")
    add("--out", type=Path, default=Path("protocols.json"), help="figures (default: %(default)s)")
    add("--plot", type=Path, default=Path("protocols.png"), help="seconds per token (default: %(default)s)")
    return parser


def report(
    found: Sequence[Response], wire: WireFormat, config: Config, entropy_bits: float | None, out: Path, image: Path
) -> None:
    """Everything that follows from the measured responses."""
    usual = levels(found)
    of = seconds(found, usual)
    here = tuple(dict.fromkeys(one.cell for one in found))
    table: list[Figures] = []
    charged: list[Comparison] = []
    levelled: list[Comparison] = []
    for cell in here:
        mine = [one for one in found if one.cell == cell]
        table += [figures([one for one in mine if one.method == method], of) for method in METHODS]
        charged.append(compare(cell, mine, of, lambda spent: spent.charged_s))
        levelled.append(compare(cell, mine, of, lambda spent: spent.levelled_s))
    print_figures(table)
    print_levels(usual)
    print_comparisons("charged seconds", charged)
    print_comparisons("levelled seconds (every kind of round at its usual time)", levelled)
    spent = _bits(found, wire, entropy_bits)
    print_bits(spent, wire, entropy_bits)
    points = _grid(found, usual, wire, config)
    print_grid(points)
    content: dict[str, object] = {"figures": table, "charged": charged, "levelled": levelled}
    content |= {"bits": spent, "grid": points, "entropy_bits": entropy_bits}
    write_json(out, content)
    plot(image, table)


def _bits(found: Sequence[Response], wire: WireFormat, entropy_bits: float | None) -> list[Bits]:
    table = []
    for greedy in sorted({one.cell.greedy for one in found}):
        for method in METHODS:
            mine = [one for one in found if one.cell.greedy == greedy and one.method == method]
            drafted = [one for one in mine if any(a.timing.drafted_tokens for a in one.rounds)]
            if method != NO_DRAFT and drafted:
                table.append(bits(drafted, wire, entropy_bits))
    return table


def _grid(found: Sequence[Response], usual: Levels, wire: WireFormat, config: Config) -> list[GridPoint]:
    measured = {one.cell.greedy for one in found}
    costs = {greedy: measured_costs(found, usual, wire, greedy=greedy) for greedy in measured}
    protocols = tuple(ProtocolName)
    return [
        grid_point(cell, costs[cell.greedy], config.speculation.k_max, protocols)
        for cell in grid_cells()
        if cell.greedy in measured
    ]

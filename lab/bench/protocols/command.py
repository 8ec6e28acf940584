"""``outrider bench protocols``: every protocol compared on a real cluster with emulated links.

Starts the embedded cluster and emulates links of 1, 20 and 500 Mbps with RTTs of 0 and 50 ms, or those that drafter
groups have (``drafters.0.link``). On each, greedy and at temperature 1, or at ``--temperatures``, the same prompts are
answered without drafts, by each protocol alone, and by ``cheapest``, which chooses protocol and window every round. A
fixed protocol uses the plan that the service chose most often when only the protocol was given. Methods take turns
prompt by prompt; there is one request at a time.

The comparison uses *charged* time: the link's model for the bits really sent, plus measured computation.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace

from cluster.local import running
from cluster.option_types import integer, new_file, positive_int
from cluster.options import add_config_options, read_config
from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.record import write_record
from lab.bench.protocols.figures import (
    Comparison,
    MethodFigures,
    compare,
    figures,
    seconds,
    show_comparisons,
    show_figures,
)
from lab.bench.protocols.measure import Amount, measure
from lab.bench.protocols.plan import FIXED, LINKS, METHODS, NO_DRAFT, TEMPERATURES, Response, cells
from lab.options import not_negative
from outrider.assembly.links import link_source
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkTrace


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    config = with_every_protocol(read_config(args))
    if config.drafter_count == 0:
        raise ConfigError("drafters", "at least one", config.drafters)
    chosen = cells(args.cells, own_links(config) or LINKS, args.temperatures)
    with running(config) as url:
        found = asyncio.run(measure(url, config, chosen, Amount(args.tokens, args.prompts, args.repeats)))
    _report(found, args)


def own_links(config: Config) -> tuple[LinkProfile, ...]:
    """The different links of the configuration's groups, in order; each is emulated at all drafters in turn."""
    found = dict.fromkeys(link_source(group.link) for group in config.drafters if group.link is not None)
    if any(isinstance(link, LinkTrace) for link in found):
        raise ConfigError("drafters.link", "one that does not change: a profile or figures", "a trace")
    return tuple(link for link in found if isinstance(link, LinkProfile))


def with_every_protocol(config: Config) -> Config:
    """Let requests name every protocol that is measured, one beside the shipped ones too."""
    protocols = dict.fromkeys((*config.speculation.protocols, *(name for name in FIXED if name != NO_DRAFT)))
    return replace(config, speculation=replace(config.speculation, protocols=tuple(protocols)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench protocols", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--cells", nargs="*", default=[], metavar="NAME", help="beginnings of names such as 20mbps-50ms-t1")
    add("--temperatures", nargs="+", type=not_negative, default=TEMPERATURES, help="0 is greedy (default: 0 1)")
    add("--tokens", type=positive_int, default=20, help="of each response (default: %(default)s)")
    add("--prompts", type=integer(1, len(PROMPTS)), default=4, help="of each cell (default: %(default)s)")
    add("--repeats", type=positive_int, default=1, help="of each prompt by each method (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser


def _report(found: Sequence[Response], args: argparse.Namespace) -> None:
    of = seconds(found)
    table: list[MethodFigures] = []
    charged: list[Comparison] = []
    for cell in dict.fromkeys(one.cell for one in found):
        mine = [one for one in found if one.cell == cell]
        table += [figures([one for one in mine if one.method == method], of) for method in METHODS]
        charged.append(compare(cell, mine, of))
    show_figures(table)
    show_comparisons(charged)
    if args.json is not None:
        write_record(args.json, args, {"figures": table, "charged": charged})

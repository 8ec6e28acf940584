"""``outrider bench paper``: measurements of TSLT, DSSD, WISP and WISV, repeated on one machine.

``tslt``: mass of the draft's top tokens, acceptance, bits and speed-up by uplink rate (TSLT section 5); ``dssd``:
communication times and speed-ups under the conditions of DSSD's tables 2 and 3. Acceptance is exact at every measured
position of a small pair, from both models' distributions; link times follow from the papers' equations, of payload
without headers, and step times are the papers'.

``wisp``: its tables of capacity, simulated: settings of both systems searched, then three seeds of each cell.

``wisv``: Table I from its printed AALs and rounds, each method at its own best window by the acceptances behind it, and
the faster of WISV's two uploads: arithmetic, no model.
``--parts frontier``: cost in score and gain in accepted length of the configured decision head and of rules without
one. ``--parts fly``: FLy's rule (arXiv 2511.22972) on the same tasks, which needs no head. ``--parts cluster``: the
rows of Table I and Figure 7's links on a cluster over emulated links.
"""

import argparse
from collections.abc import Sequence

from cluster.option_types import integer, natural, new_file
from cluster.options import add_config_options, check_plots
from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.record import write_record
from lab.bench.papers.dssd import reproduce_dssd
from lab.bench.papers.measured import Amount, load_pair
from lab.bench.papers.published import DSSD_ROWS
from lab.bench.papers.tslt import DEPTH, reproduce_tslt
from lab.bench.papers.wisp.command import add_options as add_wisp_options
from lab.bench.papers.wisp.command import wisp_part
from lab.bench.papers.wisv.reproduce import reproduce_wisv
from lab.bench.papers.wisv.rounds import TABLE_1_POINT
from lab.bench.papers.wisv_pair.command import add_options, cluster_part, fly_part, frontier_part
from lab.options import add_output_options

_OF_PAIRS = {"tslt": reproduce_tslt, "dssd": reproduce_dssd}
_LONGEST_WINDOWS = {"tslt": DEPTH, "dssd": max(row.window for row in DSSD_ROWS)}
_OF_HEADS = {"frontier": frontier_part, "fly": fly_part, "cluster": cluster_part}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="outrider bench paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    papers = parser.add_subparsers(dest="paper", required=True, metavar="PAPER")
    for name in _OF_PAIRS:
        _add_pair_options(papers.add_parser(name, help="of a pair of models"), _LONGEST_WINDOWS[name])
    _add_wisv_options(papers.add_parser("wisv", help="of Table I, and with a decision head"))
    add_wisp_options(papers.add_parser("wisp", help="of its capacities, simulated"))
    args = parser.parse_args(argv)
    if args.paper == "wisp":
        wisp_part(args)
        return
    found = _wisv(args) if args.paper == "wisv" else _of_pair(args)
    if args.json is not None:
        write_record(args.json, args, found)


def _add_pair_options(parser: argparse.ArgumentParser, longest: int) -> None:
    """Add the options; a response of fewer than ``longest`` tokens holds no round of the paper's longest window."""
    add = parser.add_argument
    add("--target", default="embedded", help="name or path (default: %(default)s)")
    add("--drafter", default="embedded", help="name or path (default: %(default)s)")
    add(
        "--prompts",
        type=integer(1, len(PROMPTS)),
        default=len(PROMPTS),
        help="responses of a kind (default: %(default)s)",
    )
    add(
        "--tokens",
        type=integer(longest),
        default=48,
        help=f"of a response at most, from {longest} (default: %(default)s)",
    )
    add("--seed", type=natural, default=0, help="of the first response (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write what is printed")


def _add_wisv_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parts", nargs="+", default=["printed"], choices=("printed", *_OF_HEADS), help="(default: printed)"
    )
    add_config_options(parser)
    add_options(parser)
    add_output_options(parser, "draw what is printed")


def _of_pair(args: argparse.Namespace) -> dict[str, object]:
    pair = load_pair(args.target, args.drafter)
    print(f"{pair.target.name} and {pair.drafter.name}, float32, one thread; intervals are 95 %")
    return _OF_PAIRS[args.paper](pair, Amount(args.prompts, args.tokens, args.seed))


def _wisv(args: argparse.Namespace) -> dict[str, object]:
    check_plots(args.plots)
    found = reproduce_wisv(TABLE_1_POINT, args.plots) if "printed" in args.parts else {}
    return found | {name: part(args) for name, part in _OF_HEADS.items() if name in args.parts}

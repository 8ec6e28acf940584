"""``outrider bench paper``: repeat the measurements of TSLT and DSSD on a small pair, on one machine.

``tslt``: mass of the draft's top tokens, acceptance, bits and speed-up by uplink rate (TSLT section 5); ``dssd``:
communication times and speed-ups under the conditions of DSSD's tables 2 and 3. Acceptance is exact at every measured
position, from both models' distributions; link times follow from the papers' equations, of payload without headers, and
step times are the papers'.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.harness.prompts import PROMPTS
from bench.harness.record import write_record
from bench.papers.dssd import reproduce_dssd
from bench.papers.pair import Amount, load_pair
from bench.papers.tslt import reproduce_tslt

_PAPERS = {"tslt": reproduce_tslt, "dssd": reproduce_dssd}


def main(argv: Sequence[str]) -> None:
    """Measure and print one paper's tables."""
    parser = argparse.ArgumentParser(
        prog="outrider bench paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("paper", choices=tuple(_PAPERS))
    add("--target", default="embedded", help="name or path (default: %(default)s)")
    add("--drafter", default="embedded", help="name or path (default: %(default)s)")
    add("--prompts", type=int, default=len(PROMPTS), help="responses of a kind (default: %(default)s)")
    add("--tokens", type=int, default=48, help="of a response at most (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the first response (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write what is printed")
    args = parser.parse_args(argv)
    pair = load_pair(args.target, args.drafter)
    print(f"{pair.target.name} and {pair.drafter.name}, float32, one thread; intervals are 95 %")
    found = _PAPERS[args.paper](pair, Amount(args.prompts, args.tokens, args.seed))
    if args.json is not None:
        write_record(args.json, args, found)

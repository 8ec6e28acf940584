"""``outrider bench paper``: reproduce the measurements of TSLT and DSSD on a small pair, on one machine.

``tslt`` is top-K mass, acceptance and speed-up over the uplink rate (TSLT section 5); ``dssd`` is the communication
times and speed-ups of DSSD's tables 1 to 3. Link times are computed from the papers' equations, step times and
acceptance are measured.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from outrider.contracts.errors import ParameterError

_PAPERS = ("tslt", "dssd")


def main(argv: Sequence[str]) -> None:
    """Run one paper's bench.

    Raises:
        ParameterError: matplotlib is not installed.
    """
    parser = argparse.ArgumentParser(prog="outrider bench paper", description=__doc__)
    parser.add_argument("paper", choices=_PAPERS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="passed to the paper's bench")
    args = parser.parse_args(argv)
    if find_spec("matplotlib") is None:
        raise ParameterError("bench paper", "matplotlib (pip install 'outrider[bench]')", "no such package")
    import_module(f"bench.paper_{args.paper}").main(args.arguments)

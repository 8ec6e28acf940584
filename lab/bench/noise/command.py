"""``outrider bench noise``: whether a device generates the same noise as numpy, and how fast.

Exits with 1 if a bit differs. Times are the minimum of several runs: of one row by numpy, and of one row and a batch of
rows on the device, synchronised.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import torch

from lab.bench.noise.comparison import compare
from outrider.sampling.device_noise import device_gumbel_noise
from outrider.sampling.noise import Purpose, gumbel_noise


def main(argv: Sequence[str]) -> None:
    """Run the bench and print what it found."""
    parser = argparse.ArgumentParser(prog="outrider bench noise", description=__doc__)
    add = parser.add_argument
    add("--device", type=torch.device, default=torch.device("cpu"), help="of torch (default: %(default)s)")
    add("--counters", type=int, default=10_000_000, help="of Philox to compare (default: %(default)s)")
    add("--vocab", type=int, default=49_152, help="tokens of a row (default: %(default)s)")
    add("--rows", type=int, default=64, help="of the batch (default: %(default)s)")
    add("--repeats", type=int, default=20, help="runs that are timed (default: %(default)s)")
    args = parser.parse_args(argv)
    found = compare(args.device, args.counters, args.vocab)
    print(
        f"{found.counters} counters on {args.device}: {found.other_words} words and {found.other_noise} values of "
        "noise differ from numpy's"
    )

    def on_device(rows: int) -> None:
        noise = device_gumbel_noise(range(rows), range(rows), Purpose.TARGET_TOKEN, args.vocab, args.device)
        noise[-1, -1].item()

    def row_by_numpy() -> None:
        gumbel_noise(1, 1, Purpose.TARGET_TOKEN, args.vocab)

    print(f"a row by numpy: {_least_ms(row_by_numpy, args.repeats):.3f} ms")
    for rows in (1, args.rows):
        print(f"{rows} on {args.device}: {_least_ms(partial(on_device, rows), args.repeats):.3f} ms")
    if not found.equal:
        sys.exit(1)


def _least_ms(run: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):  # the first one only warms up
        began = perf_counter()
        run()
        times.append(perf_counter() - began)
    return 1e3 * min(times[1:])

"""Freezes Python's garbage collector over what start-up has loaded, in processes that serve."""

import gc


def started() -> None:
    """Exclude all present objects from garbage collection. Call it once start-up has loaded everything.

    They stay as long as the process does, and are some 170,000: every full collection would traverse them, between one
    token and the next.
    """
    gc.collect()
    gc.freeze()

"""Keeps Python's garbage collector from traversing what start-up loads, in processes that serve."""

import gc


def starting() -> None:
    """Collect nothing until ``started``: imports of a hundred thousand objects trigger it again and again.

    That took a seventh of an engine's CPU time before it could load its model, and found nothing.
    """
    gc.disable()


def started() -> None:
    """Exclude all present objects from garbage collection. Call it once start-up has loaded everything.

    They stay as long as the process does, and are some 170,000: every full collection would traverse them, between one
    token and the next.
    """
    gc.collect()
    gc.freeze()
    gc.enable()

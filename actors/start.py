"""What a process that serves does once all it needs is loaded."""

import gc


def started() -> None:
    """Look at what start-up has loaded no more when cycles are searched for.

    It stays as long as the process does, and is some 170,000 objects: every full search would go over them, between
    one token and the next.
    """
    gc.collect()
    gc.freeze()

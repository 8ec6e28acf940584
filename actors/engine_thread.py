"""One thread that owns an engine. Engines are not thread-safe, and torch counts its threads per calling thread."""

from concurrent.futures import ThreadPoolExecutor

import torch


def engine_thread(threads: int) -> ThreadPoolExecutor:
    """Make a single-thread executor in which torch uses ``threads`` OpenMP threads."""
    return ThreadPoolExecutor(
        max_workers=1, thread_name_prefix="engine", initializer=torch.set_num_threads, initargs=(threads,)
    )

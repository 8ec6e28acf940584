"""Buckets of rows, and the buffer of integers that the passes of a model share. Pure.

On a GPU a pass is filled up to a bucket of rows, and its integers lie in one buffer, those of the rows first. So passes
of one bucket have inputs of the same shapes at the same addresses: what CUDA graphs need, which are not captured yet.
Rows that fill up write their keys and values into a spare block, which nobody reads.
"""

from bisect import bisect_left

LARGEST_BUCKET = 256
BUCKETS = (1, 2, 4, *range(8, LARGEST_BUCKET + 1, 8))  # as of vLLM's CUDA graphs
INPUTS = 2**16  # integers of a pass: rows, KV blocks, trees; a pass with more of them gets a buffer of its own


def bucket_of(rows: int) -> int:
    """Return how many rows a pass is filled up to; one of more than ``LARGEST_BUCKET`` stays as it is."""
    return BUCKETS[bisect_left(BUCKETS, rows)] if rows <= LARGEST_BUCKET else rows

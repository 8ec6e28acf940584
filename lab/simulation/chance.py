"""Random numbers as pure functions of (seed, device, response, position), independent of what scheduling does.

So systems and policies are compared on the same draws (common random numbers).
"""

import numpy as np

_STREAM = 2  # second word of Philox's key; 0 is that of token noise, 1 that of links
_LINK_BITS = 32
_WORD, _GOLDEN, _ODD = 2**64 - 1, 0x9E3779B97F4A7C15, 0xD1342543DE82EF95


def uniforms(seed: int, device: int, response: int, purpose: int, count: int) -> list[float]:
    """Return the first ``count`` uniform numbers in [0, 1) of one purpose; response 0 is the device itself."""
    numbers: list[float] = _generator(seed, device, response, purpose).random(count).tolist()
    return numbers


def normals(seed: int, purpose: int, block: int, count: int) -> list[float]:
    """Return one block of the server's standard normal numbers."""
    numbers: list[float] = _generator(seed, 2**_LINK_BITS, block, purpose).standard_normal(count).tolist()
    return numbers


def link_seed(seed: int, device: int) -> int:
    return (seed << _LINK_BITS | device) % 2**64


def _generator(seed: int, device: int, response: int, purpose: int) -> np.random.Generator:
    key = np.array([seed, _STREAM], dtype=np.uint64)
    counter = np.array([0, purpose, response, device], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def hashed(seed: int, purpose: int, one: int, other: int = 0) -> float:
    """Return one number in [0, 1) as a hash of the arguments (splitmix64's mixing); cheaper than a stream."""
    mixed = (seed * _ODD + purpose) & _WORD
    for part in (one, other):
        mixed = (mixed + part * _GOLDEN + _GOLDEN) & _WORD
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
        mixed ^= mixed >> 31
    return (mixed >> 11) * 2.0**-53

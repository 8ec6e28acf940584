"""Chance, as a pure function of (seed, device, response, position): the same whatever the scheduling did."""

import numpy as np

_STREAM = 2  # second word of the key; the noise of tokens has 0 there, links have 1
_LINK_BITS = 32
_WORD, _GOLDEN, _ODD = 2**64 - 1, 0x9E3779B97F4A7C15, 0xD1342543DE82EF95


def uniforms(seed: int, device: int, response: int, purpose: int, count: int) -> list[float]:
    """The first ``count`` numbers in [0, 1) of one purpose; response 0 is the device itself."""
    numbers: list[float] = _generator(seed, device, response, purpose).random(count).tolist()
    return numbers


def normals(seed: int, purpose: int, block: int, count: int) -> list[float]:
    """The server's own: standard normal numbers, block by block."""
    numbers: list[float] = _generator(seed, 2**_LINK_BITS, block, purpose).standard_normal(count).tolist()
    return numbers


def link_seed(seed: int, device: int) -> int:
    """A seed for one device's link."""
    return (seed << _LINK_BITS | device) % 2**64


def _generator(seed: int, device: int, response: int, purpose: int) -> np.random.Generator:
    key = np.array([seed, _STREAM], dtype=np.uint64)
    counter = np.array([0, purpose, response, device], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def hashed(seed: int, purpose: int, one: int, other: int = 0) -> float:
    """One number in [0, 1) where a stream of them would cost too much: a function of all four (splitmix64's mixing)."""
    mixed = (seed * _ODD + purpose) & _WORD
    for part in (one, other):
        mixed = (mixed + part * _GOLDEN + _GOLDEN) & _WORD
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
        mixed ^= mixed >> 31
    return (mixed >> 11) * 2.0**-53

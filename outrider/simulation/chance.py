"""Chance, as a pure function of (seed, device, response, position): the same whatever the scheduling did."""

import numpy as np

_STREAM = 2  # second word of the key; the noise of tokens has 0 there, links have 1
_LINK_BITS = 32


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

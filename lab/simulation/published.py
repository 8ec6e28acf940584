"""Figures printed in the WISP paper (arXiv 2601.11652): one A100 80GB, four promised speeds."""

from collections.abc import Mapping
from types import MappingProxyType

from outrider.contracts.cost import LinearCostModel

SPEEDS_TOKENS_PER_S = (2.0, 4.0, 6.0, 8.0)

# Table 12, Qwen3-32B. Its constant is below the 32 ms the card needs to read the weights once, and a cached token costs
# 36 times what its bandwidth says: coefficients of their engine, no law of the hardware.
TABLE_12 = LinearCostModel(
    seconds_per_token=3.314e-5,
    seconds_per_interaction=3.450e-8,
    seconds_per_cached_token=4.620e-6,
    seconds_per_batch=1.486e-2,
)

# Table 2, devices at each of the speeds.
CAPACITY_32B: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"sled": (83, 42, 27, 21), "centralized": (97, 80, 54, 41), "wisp": (164, 142, 103, 86)}
)

# Table 1, share of violations with mixed classes, in the order of the speeds above; the number of devices is not given.
VIOLATION_RATES: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"wisp": (0.0, 0.1080, 0.8210, 0.9827), "fcfs": (0.0, 0.3645, 0.9415, 0.9835)}
)

# Table 3, tokens per second; the load is not given.
GOODPUT_TOKENS_PER_S: Mapping[str, float] = MappingProxyType({"sled": 170.82, "centralized": 326.12, "wisp": 631.86})

"""Common parts of the benchmarks: turns of arms, driving engines and servers, records."""

"""Outrider: distributed speculative decoding. This package holds the algorithms, free of Ray, HTTP and clocks."""

__version__ = "0.1.0"

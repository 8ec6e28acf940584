"""Outrider: distributed speculative decoding. This package holds the algorithms; it knows neither Ray nor HTTP."""

__version__ = "0.1.0"

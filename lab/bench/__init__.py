"""Benchmarks: they report speed and never assert it. Run them with ``outrider bench NAME``."""

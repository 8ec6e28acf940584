"""Verifier engines: rounds against the bare model, closed loops, and services beside what one would run instead."""

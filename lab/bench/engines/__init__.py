"""Verifier engines: rounds against the bare model, and services beside what one would run instead."""

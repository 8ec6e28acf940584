"""Verifier engines: rounds against the bare model, and services against their alternatives."""

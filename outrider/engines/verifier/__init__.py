"""Verifier engine over any paged model."""

"""Routing rules compared on real verifiers."""

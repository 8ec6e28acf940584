"""Traces of requests: sampling, and spans as data, made from what was recorded. No clock, no exporter."""

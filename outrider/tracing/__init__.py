"""Traces of requests, made of what was recorded of them: who is sampled, and spans as data. No clock, no exporter."""

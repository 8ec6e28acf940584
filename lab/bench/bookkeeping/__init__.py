"""Overhead besides the model: coordinator, ingress and verifier around an engine that only sleeps."""

"""Protocols compared on a real cluster with emulated links."""

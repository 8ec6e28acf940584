"""Validation of grammars in separate processes, shared fairly between accounts."""

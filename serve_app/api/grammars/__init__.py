"""Validation of requests' grammars in processes of their own, shared fairly between accounts."""

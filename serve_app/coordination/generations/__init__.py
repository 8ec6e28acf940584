"""Responses from admission to the last chunk."""

"""Leased drafters: their slots, links and the bytes they send."""

"""Engines: a model and its resident KV behind one contract (``contracts.verifying``, ``contracts.drafting``)."""

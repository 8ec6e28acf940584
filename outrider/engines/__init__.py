"""Engines: model and resident KV behind one contract (``base``)."""

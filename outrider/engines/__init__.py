"""Engines: a model with its resident KV, behind the contracts ``contracts.verifying`` and ``contracts.drafting``."""

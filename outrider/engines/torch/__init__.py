"""Torch models as the engines drive them."""

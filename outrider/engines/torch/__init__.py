"""Paged models on torch, and engines over them."""

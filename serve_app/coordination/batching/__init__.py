"""Batches blocks for the verifier and follows its steps."""

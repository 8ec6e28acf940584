"""Acceptance rules: which draft tokens are committed, and what is drawn instead. One module per rule."""

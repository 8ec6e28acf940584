"""Exactness campaign: an engine's tokens in batches, after drafts and losses, against its tokens alone."""

"""Drafts without a model: what a text has said before, it may say again."""

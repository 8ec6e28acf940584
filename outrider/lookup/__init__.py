"""Prompt lookup: drafts without a model, from earlier occurrences of a text's last tokens."""

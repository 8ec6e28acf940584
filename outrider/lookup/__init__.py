"""Prompt lookup: drafts without a model, from text that occurred before."""

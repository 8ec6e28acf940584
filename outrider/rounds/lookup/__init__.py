"""Drafts by prompt lookup as a round uses them."""

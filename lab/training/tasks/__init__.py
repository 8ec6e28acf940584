"""Prompts whose answers can be checked: what a decision head is trained and judged by."""

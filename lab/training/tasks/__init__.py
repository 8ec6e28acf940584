"""Prompts with checkable answers, to train and evaluate a decision head."""

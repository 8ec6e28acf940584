"""Distil a drafter from the target's own layers."""

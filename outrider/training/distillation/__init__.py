"""Make a drafter for a target from the target's own layers."""

"""Models: the built-in pair, loading any target and drafter, and the drafter weight format."""

"""Very many clients at once, of which some are slow, or say nothing."""

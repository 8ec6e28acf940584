"""The drafter engine."""

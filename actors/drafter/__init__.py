"""The drafter actor and what it alone uses."""

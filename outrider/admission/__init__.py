"""Decide which responses a verifier takes on. Pure: coordinator, simulator and planner use the same objects."""

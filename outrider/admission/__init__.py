"""Which responses a verifier takes on: pure, and the same object for coordinator, simulator and planner."""

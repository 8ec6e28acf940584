"""What coordinators call drafters by, and what is computed from their reports."""

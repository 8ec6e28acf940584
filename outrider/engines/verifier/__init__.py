"""The verifier engine but for its model."""

"""Services with either verifier engine against their alternatives."""

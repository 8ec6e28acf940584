"""The verifier actor and what it alone uses."""

"""Cost of grammars at a verifier."""

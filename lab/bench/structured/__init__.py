"""What holding answers to a grammar costs a verifier."""

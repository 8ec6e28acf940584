"""What a coordinator counts and traces."""

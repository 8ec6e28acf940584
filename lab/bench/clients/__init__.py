"""Third-party clients against a service: each does what its users do, in its own environment."""

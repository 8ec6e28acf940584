"""What other people's clients make of a service: each does what its users do, in an environment of its own."""

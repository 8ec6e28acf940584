"""Fields of a request that have no effect, or that nobody here knows."""

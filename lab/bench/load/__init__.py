"""A service under load: requests by a plan, and where the time of a round goes."""

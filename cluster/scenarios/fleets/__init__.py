"""Example scenarios of whole fleets; ``cluster.scenarios`` finds them by name."""

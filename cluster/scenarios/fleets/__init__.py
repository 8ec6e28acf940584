"""Scenarios of whole fleets; ``cluster.scenarios`` knows them by name."""

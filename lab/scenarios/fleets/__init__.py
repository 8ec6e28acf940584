"""Scenarios of whole fleets; ``lab.scenarios`` knows them by name."""

"""Example scenarios of whole fleets; ``lab.scenarios`` finds them by name."""

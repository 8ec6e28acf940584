"""Settings of capacity experiments, frozen: see ``outrider.simulation.settings``."""

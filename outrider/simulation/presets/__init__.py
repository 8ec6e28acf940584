"""Frozen settings of capacity experiments (see ``outrider.simulation.settings``)."""

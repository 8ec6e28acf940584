"""Frozen settings of capacity experiments (see ``lab.simulation.settings``)."""

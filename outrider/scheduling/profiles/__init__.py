"""Profiles that are part of the package; see ``outrider.scheduling.cost_profiles``."""

"""Profiles that are part of the package; see ``outrider.costs.profiles``."""

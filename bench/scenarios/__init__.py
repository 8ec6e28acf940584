"""Scenarios to begin with, for ``outrider simulate`` and ``outrider plan``."""

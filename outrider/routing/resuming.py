"""How long an ingress waits before it resumes a response whose coordinator was lost. Pure."""

PAUSE_SPREAD = 0.5  # of a pause, either way, as a lost coordinator's responses all come back at once
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def pause_s(failures: int) -> float:
    """Longer from failure to failure, of which there is one at least."""
    return float(min(_FIRST_PAUSE_S * 2.0 ** (failures - 1), _LONGEST_PAUSE_S))

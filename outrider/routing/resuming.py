"""Compute the pause before an ingress resumes a response whose coordinator was lost. Pure."""

PAUSE_SPREAD = 0.5  # jitter as a share of a pause, either way: all responses of a lost coordinator come back at once
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def pause_s(failures: int) -> float:
    """Return the pause after this number of failures, at least one; it doubles with each up to a bound."""
    return float(min(_FIRST_PAUSE_S * 2.0 ** (failures - 1), _LONGEST_PAUSE_S))

"""Unwraps Ray's errors: the original error behind Ray's copy, and the line that says what happened."""

from ray.exceptions import RayError, RayTaskError


def cause_of(error: Exception) -> Exception:
    """Return the error as it was raised, if Ray carried it here from another process.

    Ray's copy is an instance of the original's class, too, but its message is a traceback.
    """
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error


def last_line(error: RayError) -> str:
    """Return the error's own line, which is the last of Ray's message, behind the remote traceback."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)

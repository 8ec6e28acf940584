"""What Ray's errors stand for: the original behind a copy of it, and the line that says what happened."""

from ray.exceptions import RayError, RayTaskError


def cause_of(error: Exception) -> Exception:
    """The error as it was raised, if Ray carried it here from another process.

    Ray's copy is an instance of the original's class too, but its message is a traceback.
    """
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error


def last_line(error: RayError) -> str:
    """The error itself, which Ray's message has behind the traceback of where it was raised."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)

import pytest
from ray.exceptions import RayError

from actors.ray_errors import last_line


@pytest.mark.parametrize(
    ("message", "line"), [("Traceback:\n  File 1\nValueError: no\n\n", "ValueError: no"), (" \n", "RayError")]
)
def test_the_last_line_is_the_error_itself(message: str, line: str) -> None:
    assert last_line(RayError(message)) == line

from pathlib import Path
from typing import Any

import pytest

from actors.ray_internals import core


def failing(text: str) -> Any:
    def start(**_: object) -> None:
        raise Exception(text)  # noqa: TRY002 (as Ray does)

    return start


def test_a_ray_that_starts_too_slowly_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", failing("The current node timed out during startup. This could happen"))
    with pytest.raises(core.RayStartError, match=r"within 30 s, found .*; end other work here and try again"):
        core.init_in(tmp_path)


def test_other_errors_of_ray_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", failing("no permission"))
    with pytest.raises(Exception, match=r"^no permission$"):
        core.init_in(tmp_path)

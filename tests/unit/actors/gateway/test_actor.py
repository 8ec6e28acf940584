"""What a gateway that Ray has started anew knows at once."""

import json
from pathlib import Path

import pytest

from actors.gateway import actor
from actors.gateway_beats import GatewaySettings
from outrider.config.gateway import GatewayConfig
from tests.unit.actors.gateway.dialling import GROUP


def test_the_files_that_it_had_and_whom_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "outrider_home", lambda: tmp_path)
    (file := tmp_path / "drafter.onnx").write_bytes(b"abc")
    (tmp_path / "exported").mkdir()
    settings = GatewaySettings(GatewayConfig(), (GROUP,), "target")
    for files, known in (
        ({"far": [str(file), "00" * 32, 3]}, ["far"]),
        ({"far": [str(file), "00" * 32, 4]}, []),
        ({"closed": [str(file), "00" * 32, 3]}, []),
        ([], []),
    ):
        (tmp_path / "exported" / "gateway-0.json").write_text(json.dumps(files))
        found = actor._known_files("gateway-0", settings)  # noqa: SLF001
        assert list(found) == known
        assert all(one.is_for == GROUP.may_join for one in found.values())

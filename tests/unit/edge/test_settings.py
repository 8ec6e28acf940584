from pathlib import Path

import pytest

from edge.settings import EdgeSettings, read_settings
from outrider.contracts.errors import ConfigError

WHOLE = 'drafter = "/d.onnx"\nlisten = "/run/s.sock"\n'


def test_a_file_with_two_fields_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(WHOLE, encoding="utf-8")
    assert read_settings(file) == EdgeSettings(drafter="/d.onnx", listen="/run/s.sock")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('drafter = "/d.onnx"', "listen: needs an absolute path"),
        (WHOLE.replace("/run/", ""), "listen: needs an absolute path"),
        (f"{WHOLE}threads = 0", "threads: needs an integer in 1..1024, found 0"),
        (f"{WHOLE}kv_budget_mib = true", "kv_budget_mib: needs an integer"),
        (f'{WHOLE}sha256 = "A"', "sha256: needs 64 hex digits"),
        (f"{WHOLE}treads = 1", "treads: needs one of drafter, listen"),
        ("drafter = ", "needs a TOML file"),
    ],
)
def test_other_files_are_refused_with_the_field(text: str, found: str, tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_settings(file)
    assert found.split(":", maxsplit=1)[0] in str(refused.value)
    assert found.rpartition(": ")[2] in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a TOML file"):
        read_settings(tmp_path / "edge.toml")

"""Serve's builder: the arguments of ``serve run`` and of a RayService."""

import re
from pathlib import Path

import pytest
from ray.serve import Application

from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from serve_app.app import build, config_of


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("verifiers: {count: 2}", encoding="utf-8")
    assert config_of({"config": str(path)}).verifiers.count == 2


def test_a_mapping_is_the_configuration_itself() -> None:
    config = config_of({"config": {"http": {"port": 9000}, "drafters": []}})
    assert (config.http.port, config.drafters) == (9000, ())


def test_nothing_is_the_packaged_configuration() -> None:
    assert config_of({}) == Config()


def test_the_application_is_built() -> None:
    assert isinstance(build({"config": {"verifiers": {"count": 2}}}), Application)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"confg": "my.yaml"}, "application arguments needs known keys (config), found 'confg'"),
        ({"config": 3}, "config needs the path of a YAML file, or the configuration as a mapping, found 3"),
        (
            {"config": {"http": {"port": 0}}},
            "http.port needs an integer in [1, 65535], found 0 (in the application's arguments)",
        ),
        ({"config": "/nowhere.yaml"}, "found '/nowhere.yaml: No such file or directory'"),
    ],
)
def test_mistakes_are_named(args: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(args)

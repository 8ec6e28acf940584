"""Read the configuration file into the frozen dataclasses of ``outrider.config.schema``.

A file names only the fields it changes. All problems are found before anything starts and are reported together, each
as ``field needs RANGE, found VALUE (in FILE)``; the ranges in the messages come from the schema.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from outrider.config.schema import Config
from outrider.documents.problems import ConfigFileError, explain
from outrider.documents.text_file import read_text
from outrider.documents.yaml_text import parse_yaml

_ADAPTER = TypeAdapter(Config)


def gone() -> dict[str, str]:
    """Return what became of settings of earlier versions, by their path."""
    return dict(yaml.safe_load(files("outrider.config").joinpath("gone.yaml").read_text(encoding="utf-8")))


def load_config(path: str | Path | None = None) -> Config:
    """Read a file; None reads the packaged ``default.yaml``.

    Raises:
        ConfigError: the file cannot be read or parsed, or fields are unknown, of the wrong type or out of range.
    """
    if path is None:
        return parse_config(
            files("outrider.config").joinpath("default.yaml").read_text(encoding="utf-8"), "default.yaml"
        )
    return parse_config(read_text(path, "configuration", "YAML"), str(path))


def parse_config(text: str, source: str) -> Config:
    """Parse YAML text; ``source`` names it in messages. Fields that are left out have their defaults."""
    data = parse_yaml(text, source)
    return build_config({} if data is None else data, source)


def to_yaml(config: Config) -> str:
    """Return every field as YAML; ``parse_config`` of the result equals ``config``."""
    return yaml.safe_dump(dumped(config), sort_keys=False, allow_unicode=True)


def dumped(config: Config) -> dict[str, Any]:
    """Return every field in the form of JSON; ``build_config`` of the result equals ``config``."""
    data: dict[str, Any] = _ADAPTER.dump_python(config, mode="json", by_alias=True)
    return data


def build_config(data: object, source: str) -> Config:
    """Validate parsed data; ``source`` names it in messages. A ``ConfigError`` lists all that is wrong."""
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise ConfigFileError(explain(error, _ADAPTER.json_schema(), gone()), source) from error

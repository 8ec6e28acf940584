"""YAML as operators write it: a key given twice is refused, and what is wrong is said in one line."""

from collections.abc import Hashable
from typing import Any

import yaml

from outrider.contracts.errors import ConfigError
from outrider.documents.problems import ConfigFileError


def parse_yaml(text: str, source: str) -> Any:
    """What a YAML text says, None if it is empty; ``source`` names it in messages.

    Raises:
        ConfigError: it is no YAML, or gives a key twice.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigFileError((ConfigError("configuration", "valid YAML", _complaint(error)),), source) from error


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key given twice, of which YAML libraries silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002 (PyYAML's signature)
        """Build a mapping after looking for repeated keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _complaint(error: yaml.YAMLError) -> str:
    """One line: where and what."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())

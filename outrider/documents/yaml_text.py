"""Parse operators' YAML: repeated keys are refused, expansion of aliases is bounded, errors take one line."""

import re
from collections.abc import Callable, Hashable
from typing import Any

import yaml

from outrider.contracts.errors import ConfigError
from outrider.documents.problems import ConfigFileError

MAX_VALUES = 100_000  # with aliases expanded; 8,000 API keys have 70,000
MAX_DEPTH = 100  # of nested lists and mappings: PyYAML takes quadratic time over them
MAX_NUMBER_CHARS = 100  # of a number or a date: base-60 integers take quadratic time
_TOO_MANY = f"more than {MAX_VALUES:,} values, with aliases expanded"
_QUOTED_TEXT = re.compile(r"'(?!<)[^']{12,}'")  # in PyYAML's messages; it may be a secret
_NUMBERS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))


def parse_yaml(text: str, source: str) -> Any:
    """Return the only document of a YAML text, None if it is empty; ``source`` names it in messages.

    Raises:
        ConfigError: it is no YAML, repeats a key, or is too deep or too large with its aliases expanded.
    """
    return _parsed(lambda: yaml.load(text, Loader=_BoundedLoader), source)  # noqa: S506 (a SafeLoader)


def parse_yaml_documents(text: str, source: str) -> list[Any]:
    """Return all documents of a YAML text; errors as of ``parse_yaml``."""
    documents: list[Any] = _parsed(lambda: list(yaml.load_all(text, Loader=_BoundedLoader)), source)
    return documents


def _parsed(parse: Callable[[], Any], source: str) -> Any:
    try:
        return parse()
    except RecursionError as error:
        complaint = "it is nested too deeply"
        raise ConfigFileError((ConfigError("configuration", "valid YAML", complaint),), source) from error
    except Exception as error:  # PyYAML lets through ValueError and more
        raise ConfigFileError((ConfigError("configuration", "valid YAML", _complaint(error)),), source) from error


class _BoundedLoader(yaml.SafeLoader):
    """Enforces ``MAX_VALUES``, ``MAX_DEPTH`` and ``MAX_NUMBER_CHARS``, and refuses repeated keys.

    YAML libraries silently keep the last of a repeated key.
    """

    _composed_values = _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth >= MAX_DEPTH:
            raise RecursionError
        self._composed_values += 1
        if self._composed_values > MAX_VALUES:
            raise yaml.composer.ComposerError(None, None, _TOO_MANY, self.peek_event().start_mark)  # type: ignore[no-untyped-call]  # PyYAML's
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_document(self, node: yaml.Node) -> Any:
        """Build a document after counting its values: aliases cost nothing until their expansion is traversed."""
        _expanded_values(node, {})
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT002 (PyYAML's signature)
        """Build a value; an invalid one, such as the 45th of a month, is reported with its line."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:
            raise _refused(f"no valid {node.tag.rpartition(':')[2]} (quote what is text)", node) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002 (PyYAML's signature)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    shown = key.value if key.value.isidentifier() else "a key"  # else it may be a secret
                    raise _refused(f"{shown} is given twice", key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _expanded_values(node: yaml.Node, counted: dict[yaml.Node, int | None]) -> int:
    """Return a node's number of values with aliases expanded; ``counted`` has None for a node being counted."""
    if node in counted:
        if (known := counted[node]) is None:
            raise _refused("an alias stands inside what it repeats", node)
        return known
    counted[node] = None
    values = 1
    if isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER_CHARS:
            raise _refused(f"a number has more than {MAX_NUMBER_CHARS} characters", node)
    else:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ((item,) for item in node.value)
        values += sum(_expanded_values(item, counted) for pair in pairs for item in pair)
    if values > MAX_VALUES:
        raise _refused(_TOO_MANY, node)
    counted[node] = values
    return values


def _refused(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _complaint(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        problem = _QUOTED_TEXT.sub("'...'", str(error.problem))
        return f"line {error.problem_mark.line + 1}: {problem}"
    return " ".join(_QUOTED_TEXT.sub("'...'", str(error)).split())[:300]

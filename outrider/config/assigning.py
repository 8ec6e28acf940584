"""Change single settings: by ``--set``, by flags of the command line, and by the environment."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from outrider.config.reading import build_config, dumped
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.documents.yaml_text import parse_yaml

SET = "--set"
# Two underscores: Kubernetes gives pods OUTRIDER_GATEWAY_PORT=tcp://... for a Service of the name outrider-gateway.
_BETWEEN_KEYS = "__"
_MOST_NAMED_CHARS = 200  # of what a message tells of a variable
_MOST_SOURCES = 16  # that a problem of a configuration names
_MOST_DIGITS = 9  # of a place in a list; Python converts no more than 4,300
_PREFIX = f"OUTRIDER{_BETWEEN_KEYS}"


class Assignment(NamedTuple):
    """One setting's new value; ``source`` is what a user wrote it with: ``--set``, a flag or a variable."""

    source: str
    path: str  # such as drafters.0.count
    text: str  # YAML


def assignment_of(text: str) -> Assignment:
    """Read an argument of ``--set`` such as ``verifiers.threads=2``; without ``=`` it is a ``ConfigError``."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(SET, "KEY=VALUE, such as verifiers.threads=2", text)
    return Assignment(SET, path, value)


def from_environment(environment: Mapping[str, str]) -> list[Assignment]:
    """Return the settings of variables such as ``OUTRIDER__VERIFIERS__THREADS``, a section before what is in it."""
    named = sorted(name for name in environment if name.startswith(_PREFIX))
    return [
        Assignment(name, name.removeprefix(_PREFIX).lower().replace(_BETWEEN_KEYS, "."), environment[name])
        for name in named
    ]


def override(config: Config, assignments: Sequence[str]) -> Config:
    """Apply arguments of ``--set`` such as ``drafters.0.count=3``; raises as ``assign``."""
    return assign(config, [assignment_of(text) for text in assignments])


def assign(config: Config, assignments: Sequence[Assignment]) -> Config:
    """Apply assignments in their order; the configuration is checked behind the last one.

    Raises:
        ConfigError: a value is no YAML, a path does not exist, or the result is invalid.
    """
    if not assignments:
        return config
    data: Any = dumped(config)
    for each in assignments:
        *parents, last = each.path.split(".")
        node = data
        for key in parents:
            node = node[_key_of(node, key, each)]
        final_key = _key_of(node, last, each, new=True)
        node[final_key] = _value_of(each)
    return build_config(data, _sources(assignments))


def refuse_contradictions(assignments: Sequence[Assignment]) -> None:
    """Refuse arguments that give a flag's setting another value; of several ``--set`` the last one holds.

    Raises:
        ConfigError: there are two values, a section is set behind a flag of it, or a value is no YAML.
    """
    for place, each in enumerate(assignments):
        for other in assignments[:place]:
            if other.source == each.source == SET:
                continue
            is_same = other.path == each.path and _value_of(other) != _value_of(each)
            if is_same or other.path.startswith(f"{each.path}."):
                needed = f"not to change {other.path}, which is {other.text} by {other.source}"
                raise ConfigError(_named(each), needed, each.text)


def _sources(assignments: Sequence[Assignment]) -> str:
    names = list(dict.fromkeys(each.source for each in assignments))
    more = len(names) - _MOST_SOURCES
    shown = ", ".join(name[:_MOST_NAMED_CHARS] for name in names[:_MOST_SOURCES])
    return f"{shown} and {more} more" if more > 0 else shown


def _value_of(given: Assignment) -> Any:
    try:
        return parse_yaml(given.text, given.source)
    except ConfigError as error:
        raise ConfigError(given.path, "a YAML value", given.text) from error


def _named(given: Assignment) -> str:
    named = f"{SET} {given.path}" if given.source == SET else given.source
    return named if len(named) <= _MOST_NAMED_CHARS else f"{named[:_MOST_NAMED_CHARS]}..."


def _key_of(node: Any, key: str, given: Assignment, *, new: bool = False) -> str | int:
    """Return the key or index of ``key`` in ``node``; a ``new`` last key of a mapping need not exist."""
    if isinstance(node, dict) and (new or key in node):
        return key
    if isinstance(node, list) and key.isdecimal() and len(key) <= _MOST_DIGITS and int(key) < len(node):
        return int(key)
    choices = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    known = ", ".join(map(str, choices)) or "nothing below it"
    hint = "".join(f"; did you mean {close}?" for close in get_close_matches(key, map(str, choices), n=1))
    raise ConfigError(_named(given), f"a path to a field (here: {known}{hint})", key)

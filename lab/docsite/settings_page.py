"""Reference of all settings: from the schema, and from the comments of ``default.yaml``."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter

from lab.docsite.schema_text import Schema, code, name_of, named_in, type_of
from outrider.config.reloadable import COUNTS, RELOADABLE
from outrider.config.schema import Config

_LINE = re.compile(r"^(?P<indent> *(?:- )?)(?P<key>\w+):(?: (?P<value>.*?))?(?:(?<=\s)# (?P<comment>.*))?$")
_ITEM = re.compile(r"^ *- (?P<item>[^:#{]+|\{[^#]*\})(?: *# (?P<comment>.*))?$")
_MORE = re.compile(r"^ *# ?(?P<indent> *)(?P<comment>.*)$")
_EXAMPLE = range(2, 5)  # columns within a comment at which an example or a field begins; further right it goes on


def comments(lines: Iterable[str]) -> dict[str, str]:
    """Return the comment of each key, such as ``drafters[].link``; items and examples are a list in it."""
    found: dict[str, list[str]] = {}
    path: list[tuple[int, str]] = []  # the keys around a line, with their columns
    for line in lines:
        if key := _LINE.match(line):
            column, is_item = len(key["indent"]), key["indent"].endswith("- ")
            while path and path[-1][0] >= column:
                path.pop()
            if is_item and path and not path[-1][1].endswith("[]"):
                path[-1] = (path[-1][0], f"{path[-1][1]}[]")
            path.append((column, key["key"]))
            found[_name(path)] = [key["comment"] or ""]
        elif path and (item := _ITEM.match(line)):
            found[_name(path)].append(f"\n- `{item['item'].strip()}`: {item['comment']}" if item["comment"] else "")
        elif path and (more := _MORE.match(line)):
            found[_name(path)].append("\n- " * (len(more["indent"]) in _EXAMPLE) + more["comment"])
    return {
        name: " ".join(part for part in parts if part).replace(" \n", "\n").strip() for name, parts in found.items()
    }


def _name(path: list[tuple[int, str]]) -> str:
    return ".".join(key for _, key in path)


_HEAD = """# Settings

Every setting, drawn from the schema that reads it. A file names only what it changes, and `--set` overrides one
([Configure a service](../how-to/configure.md)). `outrider config show` prints what a file comes to.

*A change* says what `outrider deploy` does to a running service: **no restart** (the setting is reloadable), **replicas
come or go** while the others stay, or **every replica restarts**, one after the other.
"""
_CHANGES = {"light": "no restart", "counts": "replicas come or go", "": "every replica restarts"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its dotted name, its schema, and its default as JSON text."""

    name: str
    schema: Schema
    default: str

    @property
    def section(self) -> str:
        return self.name.partition(".")[0].removesuffix("[]")


def settings() -> list[Setting]:
    schema, defaults = _schema(), json.loads(TypeAdapter(Config).dump_json(Config()))
    return list(_leaves("", schema, defaults, schema["$defs"]))


def settings_page() -> str:
    said = comments(files("outrider.config").joinpath("default.yaml").read_text(encoding="utf-8").splitlines())
    parts, section, definitions = [_HEAD], "", _schema()["$defs"]
    for setting in settings():
        if setting.section != section:
            section = setting.section
            parts.append(f"## {section}\n" + (f"\n{_sentence(said[section])}\n" if said.get(section) else ""))
        parts.append(_entry(setting, said.get(setting.name, ""), definitions))
    return "\n".join(parts)


def _schema() -> dict[str, Any]:
    return TypeAdapter(Config).json_schema()


def _leaves(prefix: str, schema: Schema, defaults: Any, definitions: Mapping[str, Schema]) -> Iterator[Setting]:
    for name, found in schema["properties"].items():
        path, default = f"{prefix}{name}", defaults.get(name)
        if "$ref" in found:
            yield from _leaves(f"{path}.", definitions[name_of(found)], default, definitions)
        elif path == "drafters":
            group = definitions[name_of(found["items"])]
            yield from _leaves(f"{path}[].", group, default[0], definitions)
        else:
            yield Setting(path, found, json.dumps(default, ensure_ascii=False))


def _entry(setting: Setting, said: str, definitions: Mapping[str, Schema]) -> str:
    takes = re.sub(r"`\w+Config`", "the fields below", type_of(setting.schema))
    facts = f"{takes} · default `{setting.default}` · a change: {_change(setting.name)}"
    lines = [f"### `{setting.name}`", "", facts, ""]
    if said:
        lines += [_sentence(said), ""]
    if inner := named_in(setting.schema):
        lines += ["| field | takes | default |", "| --- | --- | --- |"]
        for name, found in definitions[inner]["properties"].items():
            lines.append(
                f"| `{name}` | {type_of(found)} | {code(found['default']) if 'default' in found else 'needed'} |"
            )
        lines.append("")
    return "\n".join(lines)


def _change(name: str) -> str:
    section, _, field = name.partition(".")
    field = field.partition(".")[0]
    reloads = "light" if field in RELOADABLE.get(section, ()) else "counts" if field in COUNTS.get(section, ()) else ""
    return _CHANGES[reloads]


def _sentence(said: str) -> str:
    """A comment as Markdown: with a capital in front, a full stop behind, and no markup by accident."""
    text = re.sub(r"(?<!`)([\[\]<>*])", r"\\\1", said)
    text = re.sub(r"docs/(\S+?)/([\w-]+)\.md", r"[\2](../\1/\2.md)", text)
    text = text[0].upper() + text[1:] if not re.match(r"[a-z]+(_[a-z]+)+|[a-z]+:|[a-z0-9_]+ \|", text) else text
    text = re.sub(r"(?<!\n)\n- ", "\n\n- ", text, count=1)
    return text if text.endswith((".", ":")) else f"{text}."

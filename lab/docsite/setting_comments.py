"""The comments of ``default.yaml`` by setting: what each setting does, as operators read it there."""

import re
from collections.abc import Iterable

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

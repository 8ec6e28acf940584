"""How large product and lab are, and that neither grows: ``python -m tests.budgets``, part of ``make check``.

Budgets can only fall: ``--lower`` writes those down that the product has got below, and raises none.
"""

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

from outrider.config.schema import Config

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_name("budgets.json")
PRODUCT = ("outrider", "actors", "serve_app", "cluster", "edge")
_FILE_LINES, _FUNCTION_LINES, _CLASS_LINES, _PARAMETERS = 400, 50, 250, 7
_ROOM_LINES, _ROOM_FILES = 2500, 20  # of one directory's own files


def product_files(root: Path = ROOT) -> list[Path]:
    """All modules that are installed."""
    return _modules(root, PRODUCT)


def _modules(root: Path, packages: Iterable[str]) -> list[Path]:
    return sorted(path for package in packages for path in (root / package).rglob("*.py"))


def measured(root: Path = ROOT) -> dict[str, int]:
    """Counts over the product's source, by what is counted."""
    files = product_files(root)
    texts = [path.read_text(encoding="utf-8") for path in files]
    lines = [len(text.splitlines()) for text in texts]
    rooms, room_lines = Counter(path.parent for path in files), Counter[Path]()
    for path, count in zip(files, lines, strict=True):
        room_lines[path.parent] += count
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return {
        "product lines": sum(lines),
        "lab lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _modules(root, ["lab"])),
        f"rooms over {_ROOM_LINES} lines": sum(count > _ROOM_LINES for count in room_lines.values()),
        f"rooms over {_ROOM_FILES} files": sum(count > _ROOM_FILES for count in rooms.values()),
        f"files over {_FILE_LINES} lines": sum(count > _FILE_LINES for count in lines),
        f"functions over {_FUNCTION_LINES} lines": sum(_lines(node) > _FUNCTION_LINES for node in functions),
        f"classes over {_CLASS_LINES} lines": sum(_lines(node) > _CLASS_LINES for node in classes),
        f"functions with over {_PARAMETERS} parameters": sum(_parameters(node) > _PARAMETERS for node in functions),
        "configuration leaves": sum(1 for _ in leaves(Config)),
        "classes": len(classes),
        "class names given twice": len(classes) - len({node.name for node in classes}),
    }


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """All but ``self`` and ``cls``."""
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in {"self", "cls"} for each in named)


def leaves(section: type) -> Iterator[str]:
    """Settings of a section of the configuration that are no sections themselves; of a list, those of one item."""
    hints = get_type_hints(section)
    for field in fields(section):
        inner = next(_sections(hints[field.name]), None)
        if inner is None:
            yield field.name
        else:
            yield from leaves(inner)


def _sections(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for each in get_args(hint):
        yield from _sections(each)


def over(found: Mapping[str, int], budgets: Mapping[str, int]) -> list[str]:
    """What is counted and exceeds its budget, or has none."""
    return [name for name, count in found.items() if count > budgets.get(name, -1)]


def lowered(found: Mapping[str, int], budgets: Mapping[str, int]) -> dict[str, int]:
    """Each budget, or what is counted where that is less."""
    return {name: min(count, budgets.get(name, count)) for name, count in found.items()}


def main() -> None:
    """Print counts beside budgets; status 1 if one is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.budgets", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower budgets to what is counted now")
    lower = parser.parse_args().lower
    found, budgets = measured(), json.loads(BUDGETS.read_text())
    for name, count in found.items():
        print(f"{name:36} {count:7} of {budgets.get(name, 0):7}")
    if lower:
        BUDGETS.write_text(json.dumps(lowered(found, budgets), indent=1) + "\n")
    if exceeded := over(found, budgets):
        sys.exit(f"over budget: {', '.join(exceeded)}; delete or divide something (tests/budgets.json has the budgets)")


if __name__ == "__main__":
    main()

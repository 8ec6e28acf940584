"""No circle of imports between modules, those for type checkers alone included."""

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.budgets import PRODUCT, ROOT


def modules(root: Path) -> dict[str, Path]:
    """Those of the product and of the lab, by name; a package is its ``__init__``."""
    files = (file for package in (*PRODUCT, "lab") for file in (root / package).rglob("*.py"))
    named = ((file.relative_to(root).with_suffix("").parts, file) for file in files)
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): file for parts, file in named}


def imports(file: Path, known: Mapping[str, Path]) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & set(known)) or {node.module}
    return found & set(known)


def test_no_module_imports_itself_through_others() -> None:
    known = modules(ROOT)
    TopologicalSorter({name: imports(file, known) for name, file in known.items()}).prepare()


def test_a_circle_for_type_checkers_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "one.py").write_text("from lab.two import a")
    (tmp_path / "lab" / "two.py").write_text("if TYPE_CHECKING:\n    from lab import one\n")
    known = modules(tmp_path)
    with pytest.raises(CycleError):
        TopologicalSorter({name: imports(file, known) for name, file in known.items()}).prepare()

"""Build ``outrider-edge``: of this tree exactly the modules that the device's main imports, found in their source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = Path(__file__).resolve().parents[2]
MAIN, ROOTS = "edge.main", ("edge", "outrider")


@cache
def needed() -> list[str]:
    """Return the names of all modules that importing the main imports, itself and their packages included."""
    found, left = set[str](), [MAIN]
    while left:
        name = left.pop()
        if name in found or not file_of(name).is_file():  # a name in a module is none
            continue
        found.add(name)
        left += [name.rpartition(".")[0], *imported(name)]
    return sorted(found)


def file_of(name: str) -> Path:
    """Return the source of a module or package of this tree."""
    place = TREE.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def imported(name: str) -> Iterator[str]:
    """Yield what may be modules of this tree and is imported when the module is: not in functions, not for types."""
    left: list[ast.AST] = [ast.parse(file_of(name).read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in ROOTS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOTS:
            yield str(node.module)
            yield from (f"{node.module}.{one.name}" for one in node.names)
        left += ast.iter_child_nodes(node)


class BuildNeeded(build_py):  # type: ignore[misc]  # setuptools ships no types
    """Takes only what is needed of each package."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return package, module and file of each."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [one for one in found if ".".join(one[:2]).removesuffix(".__init__") in needed()]


def version() -> str:
    """Return the version of ``outrider``."""
    text = (TREE / "outrider" / "__init__.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    return str(ast.literal_eval(values["__version__"]))


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:  # nothing is left in the tree
        options = {"egg_info": {"egg_base": scratch}, "build": {"build_base": scratch}}
        setup(
            version=version(),
            packages=[name for name in needed() if file_of(name).name == "__init__.py"],
            package_dir={"": "../.."},
            cmdclass={"build_py": BuildNeeded},
            options=options,
        )

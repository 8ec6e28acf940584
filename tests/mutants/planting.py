"""Planting faults into a copy of the source, one by one, to see which test fails on each.

A gate is worth the faults it has caught. What is planted is a small edit of the source; where its anchor is gone, or is
found more than once, planting fails: a fault that cannot be planted has caught nothing.
"""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

PRODUCT = ("outrider", "actors", "serve_app", "edge", "lab")
TREES = (*PRODUCT, "cluster", "tests")


@dataclass(frozen=True)
class Fault:
    """An edit that makes the product wrong.

    Attributes:
        name: what is wrong then.
        anchor: found once in all of the product.
        edit: stands in its place.
        tests: pytest's arguments, the fewest tests that see it.
    """

    name: str
    anchor: str
    edit: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What the tests made of a fault; ``by`` is the first test that failed, "" if none did."""

    fault: Fault
    by: str


class AnchorError(Exception):
    """A fault cannot be planted."""


class Watch:
    """Remembers the first test that failed."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pytest's hook, at each phase of each test."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def copied(root: Path, to: Path) -> Path:
    """Product and tests, without what running them has left there."""
    for name in TREES:
        if (root / name).is_dir():
            copytree(root / name, to / name, ignore=ignore_patterns("__pycache__"))
    (to / "pyproject.toml").write_bytes((root / "pyproject.toml").read_bytes())
    return to


def site(tree: Path, fault: Fault) -> Path:
    """The file its anchor is in.

    Raises:
        AnchorError: it is in none, or found more than once.
    """
    files = sorted(path for package in PRODUCT for path in (tree / package).rglob("*.py"))
    counts = {path: path.read_text().count(fault.anchor) for path in files}
    found = {path: count for path, count in counts.items() if count}
    if sum(found.values()) != 1:
        places = ", ".join(f"{path.relative_to(tree)} ({count})" for path, count in found.items()) or "no file"
        raise AnchorError(f"{fault.name}: the anchor has to be found once, found in {places}: {fault.anchor!r}")
    return next(iter(found))


def planted(tree: Path, fault: Fault) -> tuple[Path, str]:
    """The file to change, and what it is to hold.

    Raises:
        AnchorError: see ``site``; or the edit is no Python.
    """
    path = site(tree, fault)
    text = path.read_text().replace(fault.anchor, fault.edit)
    try:
        compile(text, str(path), "exec")
    except SyntaxError as error:
        raise AnchorError(f"{fault.name}: the edit cannot be compiled: {error}") from error
    return path, text


def failure(tree: Path, tests: Sequence[str]) -> str:
    """Run tests in this process, which must not have imported any of it: the first that fails, "" if all pass.

    Raises:
        RuntimeError: they could not be run; says what pytest said.
    """
    sys.path.insert(0, str(tree))
    for name in [name for name in sys.modules if name.split(".")[0] in TREES]:
        del sys.modules[name]
    watch, said = Watch(), io.StringIO()
    with redirect_stdout(said):
        options = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # preloaded
        code = pytest.main([*options, f"--rootdir={tree}", str(tree / tests[0]), *tests[1:]], plugins=[watch])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{tests}: {said.getvalue()[-2000:]}")
    return watch.failed.removeprefix(str(tree)).lstrip("/")


def examine(tree: Path, faults: Sequence[Fault], tests_of: Callable[[Fault], Sequence[str]]) -> Iterator[Found]:
    """Plant one after the other in a copy, each tested in a process of its own.

    Raises:
        AnchorError: one cannot be planted; before anything is run.
        RuntimeError: tests fail without a fault, seen before the first one that they are to catch, or cannot be run.
    """
    edits = [planted(tree, fault) for fault in faults]
    context = get_context("forkserver")
    context.set_forkserver_preload(["pytest", "torch", "transformers"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as process:
        passed = set[tuple[str, ...]]()
        for fault, (path, text) in zip(faults, edits, strict=True):
            before, tests = path.read_text(), tuple(tests_of(fault))
            if tests not in passed and (failed := process.submit(failure, tree, tests).result()):
                raise RuntimeError(f"{failed} fails without a fault")
            passed.add(tests)
            path.write_text(text)
            by = process.submit(failure, tree, tests).result()
            path.write_text(before)
            yield Found(fault, by)

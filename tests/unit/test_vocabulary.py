"""The words of the code: each name means one thing, and is the field's (docs/reference/glossary.md)."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.budgets import ROOT, product_files

# Words that only we would know, or that meant several things. docs/archive/renames.md says what is written now.
PRIVATE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "arm arms contender door few guilty inbox lane leave leaves looked_up looking looks_up lookup_leave owed pace"
        " paces regime scout scouts shelf standing stretch stretches surroundings talk teller telling told trail"
        " witnesses worth worth_above",
    )
)
# Names of /status and of metrics' labels, which stay as they are.
KEPT = {
    "actors/messages.py": {"regime"},
    "cluster/top_view.py": {"regime", "arm"},
    "outrider/selection/tuning/report.py": {"arm"},
    "outrider/selection/tuning/speculation_tuner.py": {"arm"},
    "serve_app/coordination/reporting/gauges.py": {"arm"},
    "serve_app/coordination/reporting/statistics.py": {"regime", "owed"},
}
# At a call of one that changes something they read as a question, or as somebody else's deed.
THIRD_PERSON = frozenset(
    re.findall(
        r"\w+",
        "adds arrives asks begins can comes continues ends expects follows gathers gets gives goes hangs has holds is"
        " joins leaves loses may moves opens passes reads remains returns sees stalls stands steps stops takes uses"
        " waits",
    )
)
FEWEST_WORDS = 4  # of a docstring that is no shape


def identifiers(text: str) -> set[str]:
    """All names in a module, without leading underscores, lower-case, with ``_`` between words."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {_snake(token.string.lstrip("_")) for token in tokens if token.type == tokenize.NAME}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def docstrings(text: str) -> Iterator[str]:
    """Of all classes and functions of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def says_nothing(docstring: str) -> bool:
    """Whether it is so short that it says less than a name does; shapes and formats may be as short as they are."""
    return 0 < len(docstring.split()) < FEWEST_WORDS and not re.search(r"``[^`]*[\[\d={:]", docstring)


def third_person(text: str) -> Iterator[str]:
    """Names of a module's functions that return nothing and are named by a verb in the third person."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            returns_nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
            if returns_nothing and node.name.lstrip("_").split("_")[0] in THIRD_PERSON:
                yield node.name


def glossary() -> list[list[str]]:
    """Rows of all its tables: term, meaning, where it comes from."""
    lines = (ROOT / "docs" / "reference" / "glossary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] not in {"term", "---"}]


def test_each_term_is_explained_in_one_line_and_says_where_it_comes_from() -> None:
    rows = glossary()
    assert len(rows) > 100
    assert all(len(row) == 3 and all(row) for row in rows)
    terms = Counter(term for row in rows for term in row[0].split(", "))
    assert terms.most_common(1)[0][1] == 1
    assert all(len(row[2]) > len("coined: ") for row in rows if row[2].startswith("coined")), "it says why"


def test_no_two_classes_have_one_name() -> None:
    nodes = (node for file in product_files() for node in ast.walk(ast.parse(file.read_text())))
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    assert not {name: count for name, count in names.items() if count > 1}


def test_identifiers_are_the_fields_words() -> None:
    found = dict[str, set[str]]()
    for file in product_files():
        name = str(file.relative_to(ROOT))
        words = identifiers(file.read_text()) | {*Path(name).with_suffix("").parts}
        if private := words & PRIVATE_WORDS - KEPT.get(name, set()):
            found[name] = private
    assert not found


def test_calls_that_change_something_are_imperative() -> None:
    found = {(str(file.relative_to(ROOT)), name) for file in product_files() for name in third_person(file.read_text())}
    assert not found


def test_what_is_kept_is_still_there() -> None:
    for name, words in KEPT.items():
        assert words <= identifiers((ROOT / name).read_text()), name


def test_docstrings_say_more_than_names() -> None:
    described = (
        "serve_app/answers.py",
        "serve_app/service_answers.py",
        "serve_app/api/openapi/",
        "serve_app/api/openai/",
    )  # the API's own text
    files = [file for file in product_files() if not str(file.relative_to(ROOT)).startswith(described)]
    found = {(file.name, text) for file in files for text in docstrings(file.read_text()) if says_nothing(text)}
    assert not found


def test_private_words_and_empty_docstrings_would_be_found() -> None:
    assert identifiers("class _Stretch:\n    lookupLeave = few_rows = None\n") >= {
        "stretch",
        "lookup_leave",
        "few_rows",
    }
    made = "def _arrives(self) -> None: ...\ndef is_cold(self) -> None: ...\ndef holds(self) -> bool: ...\n"
    assert [*third_person(made)] == ["_arrives", "is_cold"]
    assert says_nothing("Its engine's.")
    assert not says_nothing("``[N, heads, d]``.")

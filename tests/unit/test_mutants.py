"""The tool that plants faults: it finds what is caught and what is not, and refuses what cannot be planted."""

import sys
from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS
from tests.mutants.planting import AnchorError, Fault, copied, examine, planted

ROOT = Path(__file__).parents[2]
CAUGHT = Fault("a sum is a difference", "return one + other", "return one - other", ("tests/test_sums.py",))
SURVIVING = Fault("nothing is nothing else", "return None", "return 0", ("tests/test_sums.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of two functions, of which one is tested."""
    source = "def added(one, other):\n    return one + other\n\n\ndef nothing():\n    return None\n"
    test = (
        "from outrider.sums import added, nothing\n\n\ndef test_sums():\n    nothing()\n    assert added(1, 2) == 3\n"
    )
    files = {"outrider/__init__.py": "", "outrider/sums.py": source, "tests/test_sums.py": test, "pyproject.toml": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_every_fault_can_be_planted(fault: Fault) -> None:
    path, text = planted(ROOT, fault)
    assert text != path.read_text()
    assert (ROOT / fault.tests[0]).exists()


def test_names_are_not_given_twice() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize(
    ("anchor", "edit", "message"),
    [
        ("return one * other", "", "found once, found in no file"),
        ("return", "", r"found once, found in outrider.sums.py \(2\)"),
        ("return one + other", "return one +", "cannot be compiled"),
    ],
)
def test_a_fault_without_its_one_place_is_refused(tree: Path, anchor: str, edit: str, message: str) -> None:
    with pytest.raises(AnchorError, match=message):
        planted(tree, Fault("a fault", anchor, edit, ()))


def test_what_no_test_sees_survives(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = sys.modules.get("outrider")
    copy = copied(tree, tmp_path_factory.mktemp("copy"))
    found = list(examine(copy, [CAUGHT, SURVIVING], lambda fault: fault.tests))
    assert [one.by for one in found] == ["tests/test_sums.py::test_sums", ""]
    assert (copy / "outrider/sums.py").read_text() == (tree / "outrider/sums.py").read_text()
    assert sys.modules.get("outrider") is before


def test_tests_that_fail_by_themselves_prove_nothing(tree: Path) -> None:
    (tree / "tests/test_sums.py").write_text("def test_sums():\n    assert False\n")
    with pytest.raises(RuntimeError, match="test_sums fails without a fault"):
        list(examine(tree, [CAUGHT], lambda fault: fault.tests))

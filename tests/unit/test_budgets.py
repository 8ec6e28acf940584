from pathlib import Path

import pytest

from tests.budgets import lowered, measured, over


@pytest.fixture
def product(tmp_path: Path) -> Path:
    long_method = "    def run(self, a, b, /, c, d, e, *, f, g, h):\n" + "        a += b\n" * 260
    texts = {
        "outrider/long.py": f"class Long:\n{long_method}",
        "actors/short.py": "class Short:\n    @classmethod\n    def run(cls, a, b, c, d, e, f, g): ...\n",
        "serve_app/again.py": "class _Outer:\n    class Long:\n        pass\n" + "\n" * 400,
        "tests/other.py": "class Long:\n    pass\n",
        "lab/research.py": "class Long:\n    pass\n" * 500,
        **{f"cluster/file_{number}.py": "pass\n" * 120 for number in range(21)},
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_is_installed_is_counted(product: Path) -> None:
    found = measured(product)
    assert found.pop("configuration leaves") > 90, "of the configuration as it is"
    assert found == {
        "product lines": 262 + 3 + 403 + 21 * 120,
        "lab lines": 1000,
        "rooms over 2500 lines": 1,
        "rooms over 20 files": 1,
        "files over 400 lines": 1,
        "functions over 50 lines": 1,
        "classes over 250 lines": 1,
        "functions with over 7 parameters": 1,
        "classes": 4,
        "class names given twice": 1,
    }


def test_what_exceeds_its_budget_or_has_none_is_named() -> None:
    assert over({"lines": 3, "files": 2, "classes": 1}, {"lines": 3, "files": 1}) == ["files", "classes"]


def test_budgets_only_fall() -> None:
    assert lowered({"lines": 3, "files": 2, "classes": 1}, {"lines": 4, "files": 1}) == {
        "lines": 3,
        "files": 1,
        "classes": 1,
    }

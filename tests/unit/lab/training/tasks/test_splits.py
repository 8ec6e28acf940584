import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.tasks.splits import split_tasks
from lab.training.tasks.task import Check, Task


def tasks(*keys: str) -> list[Task]:
    return [Task(key, "kind", "prompt", ("part",), Check.IN_ORDER) for key in keys]


@given(st.lists(st.text(), unique=True, max_size=50))
def test_each_task_is_in_one_split_in_its_order(keys: list[str]) -> None:
    given_tasks = tasks(*keys)
    splits = split_tasks(given_tasks)
    parts = [splits.train, splits.calibration, splits.test]
    assert sorted((task.key for part in parts for task in part), key=keys.index) == keys
    assert sum(map(len, parts)) == len(keys)
    for part in parts:
        assert list(part) == [task for task in given_tasks if task in part]


@given(st.lists(st.text(), unique=True, min_size=1, max_size=20), st.data())
def test_where_a_task_goes_depends_on_its_key_alone(keys: list[str], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(keys))
    alone, among = split_tasks(tasks(key)), split_tasks(tasks(*keys))
    for name in ("train", "calibration", "test"):
        assert bool(getattr(alone, name)) == (key in {task.key for task in getattr(among, name)})


def test_keys_keep_their_splits() -> None:
    splits = split_tasks(tasks(*(f"task-{i}" for i in range(8))))
    found = {task.key: name for name in ("train", "calibration", "test") for task in getattr(splits, name)}
    assert [found[f"task-{i}"] for i in range(8)] == [
        "train",
        "train",
        "train",
        "train",
        "train",
        "test",
        "train",
        "train",
    ]


def test_shares() -> None:
    splits = split_tasks(tasks(*map(str, range(10_000))))
    assert len(splits.train) == pytest.approx(6000, abs=250)
    assert len(splits.calibration) == pytest.approx(2000, abs=200)
    assert len(splits.test) == pytest.approx(2000, abs=200)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.tasks.task import Check, Task, split_tasks


def tasks(*keys: str) -> list[Task]:
    return [Task(key, "kind", "prompt", ("part",), Check.IN_ORDER) for key in keys]


@given(st.lists(st.text(), unique=True, max_size=50))
def test_each_task_is_in_one_split_in_its_order(keys: list[str]) -> None:
    given_tasks = tasks(*keys)
    parts = split_tasks(given_tasks)
    assert sorted((task.key for part in parts for task in part), key=keys.index) == keys
    assert sum(map(len, parts)) == len(keys)
    for part in parts:
        assert list(part) == [task for task in given_tasks if task in part]


@given(st.lists(st.text(), unique=True, min_size=1, max_size=20), st.data())
def test_where_a_task_goes_depends_on_its_key_alone(keys: list[str], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(keys))
    alone, among = split_tasks(tasks(key)), split_tasks(tasks(*keys))
    for own, of_all in zip(alone, among, strict=True):
        assert bool(own) == (key in {task.key for task in of_all})


def test_keys_keep_their_splits() -> None:
    splits = zip(("train", "calibration", "test"), split_tasks(tasks(*(f"task-{i}" for i in range(8)))), strict=True)
    found = {task.key: name for name, split in splits for task in split}
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
    train, calibration, test = split_tasks(tasks(*map(str, range(10_000))))
    assert len(train) == pytest.approx(6000, abs=250)
    assert len(calibration) == pytest.approx(2000, abs=200)
    assert len(test) == pytest.approx(2000, abs=200)

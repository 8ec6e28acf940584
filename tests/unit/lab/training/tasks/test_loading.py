import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lab.training.tasks.loading import builtin_tasks, load_tasks
from lab.training.tasks.task import Check, Task
from outrider.contracts.errors import ParameterError

GSM8K = {
    "question": "Tom has 3 eggs and buys 1,200 more. How many?",
    "answer": "3 + 1,200 = <<3+1200=1203>>1,203\n#### 1,203",
}
OWN = {"prompt": "Name two colors.", "parts": ["red", "blue"]}


def written(file: Path, *records: Any) -> str:
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    file.write_text("\n".join(lines), encoding="utf-8")
    return str(file)


def test_embedded_is_built_in() -> None:
    assert load_tasks("embedded") == builtin_tasks()


def test_embedded_tasks_may_be_counted() -> None:
    assert load_tasks("embedded:3") == builtin_tasks(3)
    assert set(Counter(task.kind for task in load_tasks("embedded:200")).values()) == {200}, (
        "as many as may be asked for"
    )


@pytest.mark.parametrize("per_kind", ["0", "201", "-1", "many"])
def test_a_count_of_embedded_tasks_that_cannot_be_had_is_refused(per_kind: str) -> None:
    with pytest.raises(ParameterError, match=rf"1\.\.200 tasks of each kind.*found 'embedded:{per_kind}'"):
        load_tasks(f"embedded:{per_kind}")


def test_own_tasks(tmp_path: Path) -> None:
    full = OWN | {"key": "two", "kind": "color", "check": "anywhere", "comment": 1}
    first, second = load_tasks(written(tmp_path / "tasks.jsonl", OWN, "", full))
    assert second == Task("two", "color", "Name two colors.", ("red", "blue"), Check.ANYWHERE)
    assert (first.prompt, first.parts, first.check, first.kind) == (second.prompt, second.parts, Check.IN_ORDER, "own")


def test_a_key_is_of_the_prompt_alone(tmp_path: Path) -> None:
    other = OWN | {"prompt": "Name three colors."}
    (one, two), (again, _) = (
        load_tasks(written(tmp_path / "one.jsonl", OWN, other)),
        load_tasks(written(tmp_path / "two.jsonl", OWN | {"parts": ["green"]}, other)),
    )
    assert one.key == again.key != two.key


def test_any_file_that_exists_is_read(tmp_path: Path) -> None:
    assert len(load_tasks(written(tmp_path / "tasks", OWN))) == 1


def test_what_built_in_tasks_are_survives_a_file(tmp_path: Path) -> None:
    tasks = builtin_tasks()[::50]
    records = [
        {"key": task.key, "kind": task.kind, "prompt": task.prompt, "parts": task.parts, "check": task.check}
        for task in tasks
    ]
    assert load_tasks(written(tmp_path / "tasks.jsonl", *records)) == tasks


def test_gsm8k(tmp_path: Path) -> None:
    (task,) = load_tasks(written(tmp_path / "train.jsonl", GSM8K))
    assert task.parts == ("1,203",)
    assert task.check is Check.LAST_NUMBER
    assert task.prompt.startswith(GSM8K["question"])
    assert '"#### number"' in task.prompt
    assert task.score(GSM8K["answer"]) == task.score("There are 1203 eggs.\n#### 1203") == 1.0
    assert task.score("3 eggs") == 0.0


@pytest.mark.parametrize(
    ("line", "needed", "found"),
    [
        ("{", "a JSON object on each line", "Expecting"),
        ('["a"]', "a JSON object on each line", '["a"]'),
        ({}, "prompt and parts, or question and answer", "none"),
        ({"question": "a", "parts": ["b"]}, "prompt and parts, or question and answer", "question, parts"),
        ({"prompt": "a"}, "parts: a list of texts", "None"),
        (OWN | {"parts": "red"}, "parts: a list of texts", "red"),
        (OWN | {"parts": [1]}, "parts: a list of texts", "[1]"),
        (OWN | {"parts": []}, "parts: at least one, none of them empty", "()"),
        (OWN | {"parts": [" "]}, "parts: at least one, none of them empty", "(' ',)"),
        (OWN | {"prompt": ["a"]}, "prompt: text", "['a']"),
        (OWN | {"prompt": " "}, "prompt: text", " "),
        (OWN | {"key": 0}, "key: text", "0"),
        (OWN | {"kind": ""}, "kind: text", ""),
        (OWN | {"check": "exactly"}, "check: one of in_order, anywhere, last_number", "exactly"),
        (OWN | {"check": ["in_order"]}, "check: one of in_order, anywhere, last_number", "in_order"),
        (OWN | {"check": "last_number"}, "parts: one number for last_number", "red"),
        (GSM8K | {"answer": "It is 42."}, 'answer: text that ends in "#### number"', "It is 42."),
        (GSM8K | {"answer": "#### many"}, "parts: one number for last_number", "many"),
        (GSM8K | {"answer": 42}, "answer: text", "42"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, needed: str, found: str) -> None:
    source = written(tmp_path / "tasks.jsonl", GSM8K, "", line)
    with pytest.raises(ParameterError) as raised:
        load_tasks(source)
    assert needed in raised.value.needed
    assert f"{source}, line 3" in str(raised.value.found)
    assert found in str(raised.value.found)


def test_a_key_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"a key of its own.*'k' at .*line 3 and at .*line 1"):
        load_tasks(written(tmp_path / "tasks.jsonl", OWN | {"key": "k"}, GSM8K, OWN | {"key": "k", "prompt": "b"}))
    with pytest.raises(ParameterError, match=r"line 2 and at .*line 1"):
        load_tasks(written(tmp_path / "tasks.jsonl", OWN, OWN))


def test_a_file_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"at least one task, found 'none in .*tasks.jsonl"):
        load_tasks(written(tmp_path / "tasks.jsonl", " ", ""))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"a readable JSON Lines file, found '.*none.jsonl: No such file"):
        load_tasks(str(tmp_path / "none.jsonl"))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParameterError, match=r"a readable JSON Lines file, found '.*binary.jsonl: not UTF-8"):
        load_tasks(str(tmp_path / "binary.jsonl"))

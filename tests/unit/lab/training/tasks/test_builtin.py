import re
from collections import Counter
from itertools import pairwise

from lab.training.tasks.loading import builtin_tasks, solved_builtin_tasks
from lab.training.tasks.task import Check, split_tasks


def test_tasks_are_many_distinct_and_always_the_same() -> None:
    tasks = builtin_tasks()
    assert len(tasks) >= 700
    assert len({task.key for task in tasks}) == len({task.prompt for task in tasks}) == len(tasks)
    assert builtin_tasks() == tasks


def test_more_of_a_kind_begin_with_the_usual_ones_and_stay_distinct() -> None:
    usual, more = builtin_tasks(), builtin_tasks(60)
    assert more[: len(usual)] == usual
    assert set(Counter(task.kind for task in more).values()) == {60}
    further = more[len(usual) :]
    kinds = len({task.kind for task in usual})
    assert [len({task.kind for task in further[at : at + kinds]}) for at in range(0, len(further), kinds)] == [
        kinds
    ] * 16
    assert builtin_tasks(2) == tuple(task for task in usual if task.key.rpartition("-")[2] in "01")
    assert len({task.key for task in more}) == len({task.prompt for task in more}) == len(more)


def test_prompts_are_complete() -> None:
    for task in builtin_tasks():
        assert not re.search(r"[{}]|None", task.prompt + "".join(task.parts))
        assert not re.search(r"\ba [aeiou]", task.prompt)
        assert task.prompt == task.prompt.strip()


def test_a_right_answer_has_all_parts_an_empty_one_none_and_half_of_it_some() -> None:
    for solved in solved_builtin_tasks():
        task, answer = solved.task, solved.answer
        assert len(task.parts) >= 7, task.key
        assert task.score(answer) == 1.0, task.key
        assert task.score("") == 0.0
        assert 0.0 < task.score(answer[: len(answer) // 2]) < 1.0, task.key


def test_another_tasks_answer_is_not_right() -> None:
    solved = solved_builtin_tasks()
    for one, other in pairwise(solved):
        assert one.task.score(other.answer) < 1.0, one.task.key


def test_right_answers_are_long() -> None:
    """In words, digits, marks and line breaks: tokens of the embedded target are about as many, and 80 or more."""
    for solved in solved_builtin_tasks():
        assert len(re.findall(r"\d|[^\W\d]+|[^\w\s]|\n", solved.answer)) >= 70, solved.task.key


def test_most_answers_can_be_wrong_in_order() -> None:
    checks = Counter(task.check for task in builtin_tasks())
    assert checks[Check.IN_ORDER] > checks[Check.ANYWHERE] > 0


def test_each_split_has_tasks_of_each_kind() -> None:
    tasks = builtin_tasks()
    kinds = {task.kind for task in tasks}
    assert len(kinds) > 10
    for split in split_tasks(tasks):
        assert {task.kind for task in split} == kinds

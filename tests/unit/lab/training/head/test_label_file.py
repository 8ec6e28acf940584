from dataclasses import replace
from pathlib import Path

import pytest

from lab.training.head.pair import EncodedTask, Pair, ask, paged
from lab.training.head.replacing import LabelledAnswer, Sampling, make_labels, texts_needed
from outrider.contracts.errors import ParameterError
from tests.unit.lab.training.head.tiny_pairs import LIMIT, load, save_pair, tasks

BATCH = 6


@pytest.fixture
def pair(folders: tuple[str, str]) -> Pair:
    return paged(load(folders), texts_needed(BATCH), 3 + LIMIT)


@pytest.fixture
def asked(folders: tuple[str, str]) -> list[EncodedTask]:
    models = load(folders)
    return ask(models, tasks(models, 8), LIMIT)


def made(pair: Pair, asked: list[EncodedTask], file: Path, sampling: Sampling | None = None) -> list[LabelledAnswer]:
    return make_labels(pair, asked, file, sampling or Sampling(), batch=BATCH, progress=False)


def test_a_run_that_was_stopped_ends_with_the_same_file(pair: Pair, asked: list[EncodedTask], tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "deep" / "part.jsonl"
    answers = made(pair, asked, whole)
    part.parent.mkdir()
    lines = whole.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:4]) + lines[4][:30])  # a header, three tasks, and what a killed run left
    assert made(pair, asked, part) == answers
    assert part.read_bytes() == whole.read_bytes()
    assert made(pair, asked, part) == answers, "nothing is left to do"


def test_more_tasks_are_added_and_fewer_are_a_part(pair: Pair, asked: list[EncodedTask], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    first = made(pair, asked[:3], file)
    assert made(pair, asked, file)[:3] == first


def test_labels_of_another_pair_or_another_way_are_refused_by_name(
    pair: Pair, asked: list[EncodedTask], tmp_path: Path
) -> None:
    file = tmp_path / "labels.jsonl"
    made(pair, asked[:2], file)
    models = load(save_pair(tmp_path / "other", noise=0.3))
    other = paged(models, texts_needed(BATCH), 3 + LIMIT)
    with pytest.raises(ParameterError) as refused:
        made(other, asked[:2], file)
    message = str(refused.value)
    assert "labels needs labels of this pair" in message
    assert models.drafter.model_hash in message
    assert pair.models.drafter.model_hash in message
    assert pair.models.target.model_hash not in message, "only what differs is named"
    with pytest.raises(ParameterError, match="most_per_task 2"):
        made(pair, asked[:2], file, Sampling(2))


def test_labels_of_other_tasks_are_refused(pair: Pair, asked: list[EncodedTask], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    made(pair, asked[:2], file)
    with pytest.raises(ParameterError, match="labels of these tasks in this order"):
        made(pair, asked[::-1], file)
    reworded = replace(asked[0], task=replace(asked[0].task, parts=("w3",)))
    with pytest.raises(ParameterError, match=r"task-0 next.*another wording"):
        made(pair, [reworded, asked[1]], file)


def test_what_is_no_label_file_is_refused(pair: Pair, asked: list[EncodedTask], tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text('{"p": [1]}\n')
    with pytest.raises(ParameterError, match="no header in"):
        made(pair, asked, file)
    file.write_text("prose\n")
    with pytest.raises(ParameterError, match="JSON lines that `outrider train head` made"):
        made(pair, asked, file)
    assert file.read_text() == "prose\n", "it is not overwritten"

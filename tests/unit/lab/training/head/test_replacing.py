"""Labels are what replacing a token and finishing the answer really does."""

import pytest

from lab.training.head.pair import EncodedTask, LoadedPair, ask, paged
from lab.training.head.replacing import LabelledAnswer, Sampling, label_answers, texts_needed
from tests.unit.lab.training.head.tiny_pairs import LIMIT, greedy, load, rows, tasks


@pytest.fixture(scope="module")
def models(folders: tuple[str, str]) -> LoadedPair:
    return load(folders)


@pytest.fixture(scope="module")
def asked(models: LoadedPair) -> list[EncodedTask]:
    return ask(models, tasks(models, 14), LIMIT)


def labelled(
    folders: tuple[str, str], asked: list[EncodedTask], batch: int, sampling: Sampling | None = None
) -> list[LabelledAnswer]:
    pair = paged(load(folders), texts_needed(batch), max(len(one.prompt_ids) for one in asked) + LIMIT)
    found = list(label_answers(pair, asked, sampling or Sampling(), batch=batch))
    assert pair.target.free_blocks == pair.target.total_blocks
    assert pair.drafter.free_blocks == pair.drafter.total_blocks
    return found


def one_by_one(models: LoadedPair, asked: EncodedTask) -> tuple[list[int], float, list[tuple[int, int, int, float]]]:
    """Answer, its score, and of each mismatch its offset, both tokens, and the score with the drafter's."""
    start = list(asked.prompt_ids)
    text = greedy(models, start, len(start) + LIMIT)
    answer = text[len(start) :]
    drafted, _ = rows(models, "drafter", text)
    told = []

    def scored(ids: list[int]) -> float:
        return asked.task.score(str(models.target.tokenizer.decode(ids[len(start) :], skip_special_tokens=True)))

    for offset, token_id in enumerate(answer):
        own = drafted[len(start) + offset - 1]
        if own != token_id:
            replaced = greedy(models, [*text[: len(start) + offset], own], len(start) + LIMIT)
            told.append((offset, token_id, own, scored(replaced)))
    return answer, scored(text), told


def test_labels_are_those_of_replacing_one_by_one(
    folders: tuple[str, str], models: LoadedPair, asked: list[EncodedTask]
) -> None:
    found = labelled(folders, asked, batch=8)
    assert [one.asked for one in found] == asked
    for one in found:
        answer, score, told = one_by_one(models, one.asked)
        assert (list(one.answer_ids), one.score, one.found) == (answer, score, len(told))
        mine = [
            (each.mismatch.offset, each.mismatch.target_id, each.mismatch.draft_id, each.score) for each in one.replaced
        ]
        if score == 0.0:
            told = []  # nothing to lose
        assert mine == told
        assert [each.mismatch.index for each in one.replaced] == list(range(len(told)))
        assert one.labels == tuple(int(each[-1] < score) for each in told)
    labels = [label for one in found for label in one.labels]
    assert 0 < sum(labels) < len(labels), "both kinds occur"


@pytest.mark.parametrize("batch", [1, 3, 40])
def test_labels_do_not_depend_on_what_is_written_beside_them(
    folders: tuple[str, str], asked: list[EncodedTask], batch: int
) -> None:
    assert labelled(folders, asked[:6], batch) == labelled(folders, asked[:6], 8)


def test_a_sample_is_a_part_of_all_and_its_own_seeds(folders: tuple[str, str], asked: list[EncodedTask]) -> None:
    whole = labelled(folders, asked, 8)
    some = labelled(folders, asked, 8, Sampling(2, seed=3))
    assert some == labelled(folders, asked, 5, Sampling(2, seed=3))
    assert some != labelled(folders, asked, 8, Sampling(2, seed=4))
    for all_of_it, part in zip(whole, some, strict=True):
        assert part.found == all_of_it.found
        assert len(part.replaced) == min(2, part.found)
        assert set(part.replaced) <= set(all_of_it.replaced)


def test_an_answer_that_nothing_can_lower_tells_nothing(folders: tuple[str, str], asked: list[EncodedTask]) -> None:
    first = asked[0]
    hopeless = EncodedTask(
        type(first.task)("none", "tiny", first.task.prompt, ("nowhere",), first.task.check), *_rest(first)
    )
    (found,) = labelled(folders, [hopeless], 4)
    assert found.score == 0.0
    assert found.found > 0
    assert found.replaced == ()


def _rest(asked: EncodedTask) -> tuple[tuple[int, ...], int]:
    return asked.prompt_ids, asked.most_tokens

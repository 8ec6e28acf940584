"""States are those of the rows that predict a mismatch, in training as in a verifier's question."""

import numpy as np
import pytest
import torch

from lab.training.head.mismatches import along, as_sent, find_mismatches, hidden_at
from lab.training.head.pair import LoadedPair, ask, paged
from outrider.contracts.exchanged import FloatField
from tests.unit.lab.training.head.tiny_pairs import LIMIT, greedy, load, rows, tasks


@pytest.fixture(scope="module")
def models(folders: tuple[str, str]) -> LoadedPair:
    return load(folders)


def test_a_mismatch_names_both_tokens_and_its_place() -> None:
    found = find_mismatches([5, 7, 1, 9], (5, 6, 1, 2))
    assert [(one.index, one.offset, one.target_id, one.draft_id) for one in found] == [(0, 1, 6, 7), (1, 3, 2, 9)]
    assert find_mismatches([1, 2], (1, 2)) == ()


def test_states_are_those_whose_logits_predict_the_mismatch(folders: tuple[str, str], models: LoadedPair) -> None:
    pair, compared = paged(load(folders), 2, 3 + LIMIT), 0
    for one in ask(models, tasks(models, 6), LIMIT):
        start = list(one.prompt_ids)
        text = greedy(models, start, len(start) + LIMIT)
        answer = text[len(start) :]
        (drafted,) = along(pair.drafter, start, answer, want_hidden=False).choices()
        found = find_mismatches(drafted, answer)
        states = hidden_at(pair, start, answer, found)
        for side, hidden in (("drafter", states.drafter), ("target", states.target)):
            choices, expected = rows(models, side, text)
            at = [len(start) - 1 + each.offset for each in found]
            torch.testing.assert_close(torch.from_numpy(hidden), expected[at], rtol=1e-3, atol=1e-3)
            own = [each.draft_id if side == "drafter" else each.target_id for each in found]
            assert [choices[row] for row in at] == own, "what the state chooses there"
        compared += len(found)
    assert compared > 10


def test_drafter_states_are_as_the_link_leaves_them(folders: tuple[str, str], models: LoadedPair) -> None:
    pair = paged(load(folders), 2, 3 + LIMIT)
    one = ask(models, tasks(models, 3), LIMIT)[2]
    answer = greedy(models, list(one.prompt_ids), len(one.prompt_ids) + LIMIT)[len(one.prompt_ids) :]
    (drafted,) = along(pair.drafter, one.prompt_ids, answer, want_hidden=False).choices()
    found = find_mismatches(drafted, answer)
    assert found
    plain = hidden_at(pair, one.prompt_ids, answer, found)
    rounded = hidden_at(pair, one.prompt_ids, answer, found, as_sent(FloatField.FP16))
    assert np.array_equal(rounded.drafter, plain.drafter.astype(np.float16).astype(np.float32))
    assert rounded.drafter.dtype == np.float32
    assert not np.array_equal(rounded.drafter, plain.drafter)
    assert np.array_equal(rounded.target, plain.target)

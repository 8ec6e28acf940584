"""Texts that are cut, continued and forked in any order are computed as each alone would be."""

import random

import pytest
import torch

from lab.training.head.paged_texts import PagedText
from lab.training.head.pair import LoadedPair, Pair, paged
from tests.unit.lab.training.head.tiny_pairs import load, rows


@pytest.fixture
def models(folders: tuple[str, str]) -> LoadedPair:
    return load(folders)


@pytest.fixture
def pair(folders: tuple[str, str]) -> Pair:
    return paged(load(folders), 12, 80)


def test_any_order_of_cuts_and_forks_gives_what_each_text_alone_gives(models: LoadedPair, pair: Pair) -> None:
    drawing = random.Random(0)
    texts = [PagedText([drawing.randrange(40) for _ in range(20)])]
    for _ in range(60):
        deed = drawing.randrange(4)
        text = drawing.choice(texts)
        length = len(text.token_ids)
        if deed == 0 and len(texts) < 8:
            texts.append(pair.target.fork(text, drawing.randrange(1, length + 1)))
            text = drawing.choice([text, texts[-1]])
        elif deed == 1:
            text.cut(drawing.randrange(1, length + 1))
        elif deed == 2 and len(texts) > 1:
            texts.remove(text)
            pair.target.release(text)
        text.extend([drawing.randrange(40) for _ in range(drawing.randrange(6))][: 70 - len(text.token_ids)])
        chosen = drawing.sample(texts, drawing.randrange(1, len(texts) + 1))
        wanted = [drawing.randrange(1, len(one.token_ids) + 1) for one in chosen]
        found = pair.target.run(chosen, wanted, want_hidden=True)
        for at, (one, count) in enumerate(zip(chosen, wanted, strict=True)):
            choices, hidden = rows(models, "target", one.token_ids)
            assert found.choices()[at] == choices[-count:]
            own = torch.from_numpy(found.hidden_of(at, range(count)))
            torch.testing.assert_close(own, hidden[-count:], rtol=1e-3, atol=1e-3)
    for text in texts:
        pair.target.release(text)
    assert pair.target.free_blocks == pair.target.total_blocks


def test_what_is_shared_is_kept_once(pair: Pair) -> None:
    text = PagedText(list(range(33)))
    pair.target.run([text], [1])
    before = pair.target.free_blocks
    others = [pair.target.fork(text, 32) for _ in range(5)]
    assert pair.target.free_blocks == before
    for number, other in enumerate(others):
        other.extend([number])
    pair.target.run(others, [1] * 5)
    assert pair.target.free_blocks == before - 5, "a block each for what is their own"

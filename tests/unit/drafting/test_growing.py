from collections.abc import Callable
from functools import cache
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import Child
from outrider.contracts.price import DraftPrice
from outrider.contracts.tree import node_depths, node_paths
from outrider.drafting.growing import GrowingTree

Table = Callable[[tuple[int, ...]], list[Child]]
SEEDS, ROWS, VOCAB, DEPTH = st.integers(0, 2**32), st.integers(1, 12), 3, 5


def table(seed: int) -> Table:
    """A draft model of three tokens: what it says behind a path, likeliest first."""

    @cache
    def children(path: tuple[int, ...]) -> list[Child]:
        rng = np.random.default_rng([seed, len(path), *path])
        probs = rng.dirichlet([0.4] * VOCAB)
        order = np.argsort(-probs)
        return [(int(token_id), float(probs[token_id])) for token_id in order]

    return children


def grow(tree: GrowingTree, model: Table, passes: int = DEPTH) -> tuple[GrowingTree, int]:
    """The tree after so many passes, and the rows that they computed."""
    computed = 0
    for _ in range(passes):
        computed += len(tree.growing)
        tree = tree.grown([model(branch.token_ids)[: tree.rows] for branch in tree.growing]) if tree.growing else tree
    return tree, computed


def every_survival(model: Table, depth: int) -> list[float]:
    layer: dict[tuple[int, ...], float] = {(): 1.0}
    survivals = list[float]()
    for _ in range(depth):
        layer = {(*path, t): s * p for path, s in layer.items() for t, p in model(path)}
        survivals += layer.values()
    return survivals


@given(SEEDS, ROWS, st.integers(1, DEPTH))
def test_it_holds_the_nodes_of_the_highest_survival_that_there_are(seed: int, rows: int, passes: int) -> None:
    model = table(seed)
    tree, computed = grow(GrowingTree(rows), model, passes)
    best = sorted(every_survival(model, passes), reverse=True)[:rows]
    assert [branch.survival for branch in tree.branches] == pytest.approx(best)
    assert fsum(branch.survival for branch in tree.branches) == pytest.approx(fsum(best))
    assert computed <= 1 + (passes - 1) * max(0, rows - 1)


@given(SEEDS, ROWS)
def test_a_block_says_the_same_tree_layer_by_layer(seed: int, rows: int) -> None:
    tree, _ = grow(GrowingTree(rows), table(seed))
    token_ids, parents = tree.block()
    paths = {tuple(token_ids[node] for node in path) for path in node_paths(parents)}
    assert paths == {branch.token_ids for branch in tree.branches}
    assert len(paths) == len(token_ids)
    assert list(parents) == sorted(parents), "breadth first, siblings side by side"
    assert node_depths(parents) == sorted(node_depths(parents))


@given(SEEDS, ROWS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_is_sent_pays(seed: int, rows: int, row: float, step: float) -> None:
    model = table(seed)
    tree, _ = grow(GrowingTree(rows, DraftPrice(row, step)), model)
    free, _ = grow(GrowingTree(rows, DraftPrice(row)), model)
    paying = [branch for branch in grow(GrowingTree(rows), model)[0].branches if branch.survival > row]
    assert list(free.branches) == paying
    assert len(tree.branches) <= len(free.branches)
    assert all(branch.survival > row for branch in tree.branches)


def test_a_pass_pays_for_what_all_of_its_nodes_bring() -> None:
    even: list[Child] = [(0, 0.5), (1, 0.5)]
    for step, depth in ((0.9, 3), (1.0, 1)):
        tree, _ = grow(GrowingTree(15, DraftPrice(0.0, step)), lambda _: even, 3)
        assert max(len(branch.token_ids) for branch in tree.branches) == depth
    assert not grow(GrowingTree(4, DraftPrice(1.0)), lambda _: even)[0].branches


def test_of_equals_those_that_were_known_first_stay() -> None:
    sure: list[Child] = [(7, 1.0), (8, 0.0)]
    tree, computed = grow(GrowingTree(3), lambda _: sure)
    assert tree.block() == ((7, 7, 7), (-1, 0, 1))
    assert (tree.growing, computed) == ((), 3), "nothing behind the last can be among the best three"

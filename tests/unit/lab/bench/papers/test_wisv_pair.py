"""What a decision head costs and brings: turns, figures, frontiers and agreement, with a tiny pair."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.bench.papers.command import main
from lab.bench.papers.wisv_pair import reports
from lab.bench.papers.wisv_pair.cluster import (
    CHOSEN,
    FULL,
    FULL_FREE,
    METHODS,
    REJECT,
    STRICT,
    Answer,
    rows,
    spread,
    turns,
)
from lab.bench.papers.wisv_pair.frontier import HEAD, UNAWARE, fly_frontier, frontier, judging_times
from lab.bench.papers.wisv_pair.plots import plot_latencies, plot_thresholds
from lab.training.head.pair import LoadedPair, ask, paged
from lab.training.head.semantic_decoding import FLY, HEAD_FREE
from lab.training.tasks.task import Check, Task
from outrider.contracts.errors import ConfigError
from outrider.contracts.exchanged import FloatField
from outrider.models.head_file import Head, HeadInfo
from outrider.verification.decision_head import DecisionHead, HeadWeights, Standard
from tests.unit.lab.training.head.tiny_pairs import LIMIT, load, save_pair, tasks


def made_task(number: int, kind: str) -> Task:
    return Task(f"{kind}-{number}", kind, "list", ("one",), Check.ANYWHERE)


def test_every_method_answers_a_task_before_the_next_and_slow_ones_only_some() -> None:
    asked = [made_task(number, "a") for number in range(3)]
    found = list(turns("20mbps-5ms", asked, [STRICT, REJECT, CHOSEN], [2, 8]))
    assert [turn.task.key for turn in found] == ["a-0"] * 5 + ["a-1"] * 3 + ["a-2"] * 3
    assert [turn.method for turn in found].count(REJECT) == 2
    assert found[0] != replace(found[5], task=asked[0]), "another one first"
    assert {(turn.method.name, turn.window) for turn in found[5:8]} == {
        *((STRICT.name, window) for window in (2, 8)),
        (CHOSEN.name, None),
    }


def test_a_free_window_is_not_named_and_semantic_methods_ask_for_it() -> None:
    (free,) = (turn.options for turn in turns("wifi-2m", [made_task(0, "a")], [FULL_FREE], [8]))
    (fixed,) = (turn.options for turn in turns("wifi-2m", [made_task(0, "a")], [FULL], [8]))
    assert free == {"verification": "semantic", "protocol": "wisv_full"}
    assert fixed == free | {"window": 8}
    assert all("verification" in method.options for method in METHODS if not method.name.startswith("SD "))


def test_few_tasks_are_of_as_many_kinds_as_can_be() -> None:
    asked = [*(made_task(number, "a") for number in range(3)), *(made_task(number, "b") for number in range(2))]
    assert [task.key for task in spread(asked, 3)] == ["a-0", "b-0", "a-1"]
    assert len(spread(asked, 99)) == 5


def answer(method: str, window: int | None, elapsed_s: float, link: str = "a", tokens: int = 20) -> Answer:
    return Answer(link, method, window, "task", 0.5, tokens, 10, elapsed_s, judged=4, overrides=1)


def test_rows_add_up_over_tasks() -> None:
    one, other = rows([answer("x", 2, 1.0), answer("x", 2, 3.0, tokens=60), answer("x", 4, 9.0)])
    assert (one.tasks, one.aal.mean, one.rounds.mean, one.latency_s.mean) == (2, 4.0, 10.0, 2.0)
    assert (one.tokens_per_s.mean, one.passed) == (20.0, 0.25)
    assert (other.window, other.tasks) == (4, 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> LoadedPair:
    return load(save_pair(tmp_path_factory.mktemp("pair")))


def random_head(models: LoadedPair, seed: int) -> Head:
    widths = models.drafter.model.config.hidden_size, models.target.model.config.hidden_size, 5
    rng = np.random.default_rng(seed)
    drafter, target, csi = (Standard(np.zeros(size), np.ones(size)) for size in widths)
    inner, outer = rng.standard_normal((8, sum(widths))), rng.standard_normal(8)
    weights = HeadWeights(drafter, target, csi, inner, np.zeros(8), outer, 0.0)
    info = HeadInfo("target", models.target.model_hash, "drafter", models.drafter.model_hash, 0.5, 0.0, 1.0, "fp16")
    return Head(info, DecisionHead(weights, 0.5))


def test_a_frontier_has_every_rule_once(models: LoadedPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ask(models, tasks(models, 6), LIMIT)
    pair = paged(models, 24, 3 + LIMIT + 4)
    heads: Mapping[str, Head] = {HEAD: random_head(models, 0), UNAWARE: random_head(models, 1)}
    found = frontier(pair, asked, heads, 4, [0.0, 1.0], batch=12, field=FloatField.FP16)
    kinds = [row.rule for row in found.rows]
    assert (kinds.count(HEAD), kinds.count(UNAWARE), kinds.count("strict")) == (8, 8, 1)
    assert set(HEAD_FREE) < set(kinds)
    nothing, everything = (next(row for row in found.rows if row.threshold == t and row.link) for t in (0.0, 1.0))
    assert (nothing.aal, nothing.rejection_share) == (found.strict.aal, 1.0)
    assert everything.aal > found.strict.aal
    assert everything.rejection_share == 0.0
    times = judging_times(pair, asked, heads[HEAD].decisions)
    assert [(one.blocks, one.mismatches) for one in times] == [(1, 4), (8, 32), (32, 128)]
    assert all(one.share > 0.0 for one in times)
    reports.show_judging(times)
    reports.show_frontier(found)
    plot_thresholds(tmp_path / "thresholds.png", found)
    printed = capsys.readouterr().out
    assert f"strict verification scores {found.strict.score:.3f}" in printed
    assert "not told of links" in printed
    assert all(file.stat().st_size > 10_000 for file in tmp_path.glob("*.png"))


def test_the_frontier_of_fly_has_its_rules_beside_strict_verification(models: LoadedPair) -> None:
    asked = ask(models, tasks(models, 6), LIMIT)
    found = fly_frontier(paged(models, 24, 3 + LIMIT + 8), asked, random_head(models, 0), 8, batch=12)
    assert [row.rule for row in found.rows] == ["strict", *FLY]
    rejected = {row.rule: row.rejection_share for row in found.rows}
    assert rejected["FLy 0.3 nats, 2 agree"] < rejected["FLy 0.3 nats, 6 agree"] < rejected["strict"] == 1.0


def test_latencies_are_shown_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows([answer(STRICT.name, 10, 1.25, "20mbps-50ms"), answer(CHOSEN.name, None, 1.0, "20mbps-50ms")])
    reports.show_rows(found)
    plot_latencies(tmp_path / "latency.png", found)
    assert "1.25 [1.25, 1.25] (7.6)" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["frontier", "fly", "cluster"])
def test_without_a_head_there_is_nothing_to_measure(part: str) -> None:
    with pytest.raises(ConfigError, match=r"drafters\[0\].decision_head needs a decision head"):
        main(["wisv", "--parts", part, "--set", "drafters.0.decision_head=null"])

"""What a decision head costs and brings: turns, figures, frontiers and agreement, with a tiny pair."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.bench.papers.command import main
from lab.bench.papers.wisv_pair import reports
from lab.bench.papers.wisv_pair.agreement import agreements
from lab.bench.papers.wisv_pair.figures import Answer, best_windows, choices, rows
from lab.bench.papers.wisv_pair.frontier import FREE, HEAD, UNAWARE, Frontier, frontier
from lab.bench.papers.wisv_pair.judging import judging_times
from lab.bench.papers.wisv_pair.plan import (
    CHOSEN,
    FULL,
    FULL_FREE,
    METHODS,
    REJECT,
    SELECTIVE_FREE,
    STRICT,
    spread,
    turns,
)
from lab.bench.papers.wisv_pair.plots import plot_frontier, plot_latencies, plot_thresholds
from lab.training.head.pair import LoadedPair, ask, paged
from lab.training.head.rules import HEAD_FREE
from lab.training.head.sweep import SweptRow
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
    found = list(turns("20mbps-5ms", asked, 1, [STRICT, REJECT, CHOSEN], [2, 8]))
    assert [turn.task.key for turn in found] == ["a-0"] * 5 + ["a-1"] * 3 + ["a-2"] * 3
    assert [turn.method for turn in found].count(REJECT) == 2
    assert found[0] != replace(found[5], task=asked[0]), "another one first"
    assert {(turn.method.name, turn.window) for turn in found[5:8]} == {
        *((STRICT.name, window) for window in (2, 8)),
        (CHOSEN.name, None),
    }


def test_a_free_window_is_not_named_and_semantic_methods_ask_for_it() -> None:
    (free,) = (turn.options for turn in turns("wifi-2m", [made_task(0, "a")], 1, [FULL_FREE], [8]))
    (fixed,) = (turn.options for turn in turns("wifi-2m", [made_task(0, "a")], 1, [FULL], [8]))
    assert free == {"verification": "semantic", "protocol": "wisv_full"}
    assert fixed == free | {"window": 8}
    assert all("verification" in METHODS[name].options for name in METHODS if not name.startswith("SD "))


def test_few_tasks_are_of_as_many_kinds_as_can_be() -> None:
    asked = [*(made_task(number, "a") for number in range(3)), *(made_task(number, "b") for number in range(2))]
    assert [task.key for task in spread(asked, 3)] == ["a-0", "b-0", "a-1"]
    assert len(spread(asked, 99)) == 5


def answer(method: str, window: int | None, elapsed_s: float, link: str = "a", tokens: int = 20) -> Answer:
    return Answer(link, method, window, "task", 0.5, tokens, 10, elapsed_s, judged=4, overrides=1)


def test_rows_add_up_over_tasks() -> None:
    one, other = rows([answer("x", 2, 1.0), answer("x", 2, 3.0, tokens=60), answer("x", 4, 9.0)])
    assert (one.tasks, one.aal.mean, one.rounds.mean, one.latency_s.mean) == (2, 4.0, 10.0, 2.0)
    assert (one.tokens_per_s.mean, one.s_per_token, one.passed) == (20.0, 0.05, 0.25)
    assert (other.window, other.tasks) == (4, 1)


def test_each_method_at_its_best_window_and_the_choice_beside_the_rule() -> None:
    found = rows(
        [
            *(answer(STRICT.name, window, elapsed_s) for window, elapsed_s in ((2, 8.0), (4, 6.0), (8, 9.0))),
            *(answer(FULL_FREE.name, None, 4.0), answer(SELECTIVE_FREE.name, None, 5.0)),
            answer(CHOSEN.name, None, 2.0),
            answer(CHOSEN.name, None, 2.0, link="without the rest"),
        ]
    )
    assert {row.method: row.window for row in best_windows(found) if row.link == "a"} == {
        STRICT.name: 4,
        FULL_FREE.name: None,
        SELECTIVE_FREE.name: None,
        CHOSEN.name: None,
    }
    (far,), (near,) = (choices(found, {"a": rtt_s, "without the rest": rtt_s}) for rtt_s in (0.05, 0.005))
    assert (far.rule, far.over_rule, far.strict_s) == (FULL_FREE.name, 2.0, 0.3)
    assert (near.rule, near.over_rule) == (SELECTIVE_FREE.name, 2.5)


def swept(rule: str, drop: float, aal: float, rounds: float, link: str = "") -> SweptRow:
    return SweptRow(rule, link, 0.5, 0.9 - drop, 0.8, 1.0, drop, drop, aal, rounds, 60.0, 0.5, 0.4, 0.6, 0.0)


HARMLESS = ((0.005, 2.7, 20.0, "near"), (0.001, 4.0, 22.0, "far"))


def test_the_best_of_a_kind_costs_less_than_is_allowed() -> None:
    strict = swept("strict", 0.0, 2.0, 30.0)
    heads = [swept(HEAD, drop, aal, rounds, "near") for drop, aal, rounds in ((0.005, 2.7, 22.0), (0.02, 4.0, 15.0))]
    found = Frontier(24, 10, (strict, *heads, swept("rank <= 2", 0.009, 2.1, 29.0), swept("rank <= 3", 0.5, 9.0, 7.0)))
    best, free = found.best_within(HEAD), found.best_within(FREE)
    assert best is None, "one link is too bad"
    assert free is not None
    assert (free.rule, free.reached) == ("rank <= 2", False)
    good = [swept(HEAD, drop, aal, rounds, link) for drop, aal, rounds, link in HARMLESS]
    best = Frontier(24, 10, (strict, *good)).best_within(HEAD)
    assert best is not None
    assert (best.drop, best.reached) == (0.005, True)
    assert [best.more_aal, best.fewer_rounds] == pytest.approx([0.35, 8 / 30])
    assert found.best_within(UNAWARE) is None


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


def test_a_frontier_has_every_rule_once_and_fields_agree_with_themselves(
    models: LoadedPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    alike = agreements(pair, asked, heads[HEAD].decisions, [0.5], window=4, batch=12)
    whole, half, bytes_ = alike
    assert (whole.alike, whole.largest_shift) == (1.0, 0.0)
    assert half.alike > 0.9
    assert 0.0 < half.largest_shift < bytes_.largest_shift
    assert whole.bits > half.bits > bytes_.bits
    times = judging_times(pair, asked, heads[HEAD].decisions)
    assert [(one.blocks, one.mismatches) for one in times] == [(1, 4), (8, 32), (32, 128)]
    assert all(one.share > 0.0 for one in times)
    reports.show_judging(times)
    reports.show_frontier(found)
    reports.show_agreements(alike)
    plot_frontier(tmp_path / "frontier.png", found)
    plot_thresholds(tmp_path / "thresholds.png", found)
    printed = capsys.readouterr().out
    assert f"strict verification scores {found.strict.score:.3f}" in printed
    assert "not told of links" in printed
    assert all(file.stat().st_size > 10_000 for file in tmp_path.glob("*.png"))


def test_latencies_are_shown_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows([answer(STRICT.name, 10, 1.25, "20mbps-50ms"), answer(CHOSEN.name, None, 1.0, "20mbps-50ms")])
    reports.show_rows(found)
    plot_latencies(tmp_path / "latency.png", found)
    assert "1.25 [1.25, 1.25] (7.6)" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["frontier", "cluster"])
def test_without_a_head_there_is_nothing_to_measure(part: str) -> None:
    with pytest.raises(ConfigError, match=r"drafters\[0\].decision_head needs a decision head"):
        main(["wisv", "--parts", part, "--set", "drafters.0.decision_head=null"])

from collections.abc import Sequence

from lab.bench.engines.tables import compared
from lab.bench.harness.statistics import Sample

SPEEDS = {
    "outrider, vllm": (9.0, 18.0, 9.0),
    "outrider, vllm, window 0": (10.0, 20.0, 10.0),
    "outrider, vllm, window 2": (12.0, 24.0, 12.0),
    "vllm alone, 1 thread": (8.0, 8.0, 8.0),
    "vllm alone, 2 threads": (10.0, 20.0, 10.0),
    "vllm draft_model, 2 tokens, 1 thread": (90.0, 90.0, 90.0),
}


def samples(clients: int = 4, arms: Sequence[str] = tuple(SPEEDS)) -> list[Sample]:
    return [
        Sample(clients, arm, {"tokens_per_s": speed}, turn=turn)
        for arm in arms
        for turn, speed in enumerate(SPEEDS[arm])
    ]


def test_each_arm_is_compared_with_the_best_of_its_rivals_turn_by_turn() -> None:
    found = {(one.arm, one.rival): one for one in compared(samples(), (None, 0, 2))}
    own, undrafted = "outrider, vllm", "outrider, vllm, window 0"
    assert {pair: round(one.ratio.mean, 9) for pair, one in found.items()} == {
        (own, undrafted): 0.9,
        (own, "outrider, vllm, window 2"): 0.75,
        (undrafted, "vllm alone, 2 threads"): 1.0,
        (own, "vllm alone, 2 threads"): 0.9,
        (own, "vllm draft_model, 2 tokens, 1 thread"): round(36 / 270, 9),
    }
    # The machine was twice as fast in one turn: to pairs that is nothing.
    steady = [one for one in found.values() if "draft_model" not in one.rival]
    assert all(one.ratio.high - one.ratio.low < 1e-9 and one.turns == 3 for one in steady)


def test_without_a_rival_nothing_is_compared_and_numbers_of_clients_stay_apart() -> None:
    alone = samples(1, ["outrider, vllm", "outrider, vllm, window 0"])
    both = [*alone, *samples(16, ["outrider, vllm, window 0", "vllm alone, 1 thread"])]
    found = [(one.clients, one.arm, one.rival) for one in compared(both, (None, 0))]
    assert found == [
        (1, "outrider, vllm", "outrider, vllm, window 0"),
        (16, "outrider, vllm, window 0", "vllm alone, 1 thread"),
    ]


def test_a_failed_turn_is_left_out_of_both() -> None:
    broken = [
        Sample(4, one.arm, {}, "timeout", one.turn) if one.turn == 1 and one.arm == "outrider, vllm" else one
        for one in samples()
    ]
    found = compared(broken, (None, 0, 2))
    assert [one.turns for one in found if one.arm == "outrider, vllm"] == [2, 2, 2, 2]
    assert [one.turns for one in found if one.arm != "outrider, vllm"] == [3]


def test_where_no_drafts_are_the_best_window_that_is_told_once() -> None:
    slower = [
        Sample(4, one.arm, {"tokens_per_s": 1.0}, turn=one.turn) if one.arm == "outrider, vllm, window 2" else one
        for one in samples()
    ]
    found = [(one.arm, one.rival) for one in compared(slower, (None, 0, 2))]
    assert found[:2] == [
        ("outrider, vllm", "outrider, vllm, window 0"),
        ("outrider, vllm, window 0", "vllm alone, 2 threads"),
    ]


def test_what_is_looked_up_is_compared_with_the_same_without_and_with_all_that_vllm_offers() -> None:
    speeds = {
        "outrider, vllm": 10.0,
        "outrider, vllm, lookup 8": 30.0,
        "vllm alone, 1 thread": 15.0,
        "vllm ngram, 4 tokens, 1 thread": 20.0,
    }
    found = compared([Sample(1, arm, {"tokens_per_s": speed}) for arm, speed in speeds.items()], (None,))
    ngram, alone, looking = "vllm ngram, 4 tokens, 1 thread", "vllm alone, 1 thread", "outrider, vllm, lookup 8"
    assert {(one.arm, one.rival): round(one.ratio.mean, 9) for one in found} == {
        (looking, "outrider, vllm"): 3.0,
        ("outrider, vllm", alone): round(2 / 3, 9),
        ("outrider, vllm", ngram): 0.5,
        (looking, alone): 2.0,
        (looking, ngram): 1.5,
    }

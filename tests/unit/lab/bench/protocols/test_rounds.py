import pytest

from lab.bench.protocols.plan import CHEAPEST, NO_DRAFT, Choice, Round, at_work, parse_choices
from outrider.contracts.drafting import DraftPlan
from tests.unit.lab.bench.protocols.made_rounds import CELL, PAIR, timing


def report(
    reason: str, protocol: str | None = None, window: int = 0, expansion: tuple[int, ...] = ()
) -> dict[str, object]:
    chosen = {"protocol": protocol, "window": window, "expansion": list(expansion)}
    return {"reason": reason, "chosen": chosen, "runner_up": None}


def test_choices_are_read_from_usage() -> None:
    choices = parse_choices([report("no_drafter"), report("cheapest", "token_ids", 2, (2, 1))])
    assert choices == (Choice("no_drafter", None), Choice("cheapest", DraftPlan("token_ids", 2, (2, 1))))


def test_rounds_without_a_drafter_and_the_last_token_are_left_out() -> None:
    tree = report("cheapest", "token_ids", 1, (2,))
    choices = parse_choices([report("no_drafter"), report("no_drafter"), tree, report("kept"), report("last_token")])
    timings = [timing(0), timing(0), timing(2), timing(0), timing(0)]
    rounds, chosen = at_work(CHEAPEST, timings, choices)
    assert [one.plan for one in rounds] == [DraftPlan("token_ids", 1, (2,)), None]
    assert [one.reason for one in chosen] == ["cheapest", "kept"]


def test_without_drafts_only_the_prefill_is_left_out() -> None:
    rounds, _ = at_work(NO_DRAFT, [timing(0)] * 4, parse_choices([report("no_drafter")] * 4))
    assert len(rounds) == 3


def test_plans_follow_from_the_drafts_where_choices_were_not_report() -> None:
    timings = [timing(0), timing(2, protocol="dssd"), timing(1, 0, "dssd")]
    rounds, _ = at_work("dssd", timings, parse_choices([report("no_drafter"), report("fixed", "dssd", 2)]))
    assert [one.plan for one in rounds] == [DraftPlan("dssd", 2), DraftPlan("dssd", 1)]


def test_charged_time_takes_the_link_from_the_model_and_the_rest_as_measured() -> None:
    # 5000 bits at 1 Mbps and 50 ms in place of the 300 ms that passed.
    assert Round(timing(), PAIR).charged_s(CELL) == pytest.approx(0.02 + 0.06 + 0.01 + 0.055)
    assert Round(timing(0), None).charged_s(CELL) == pytest.approx(0.07)

import pytest

from lab.bench.papers.wisv.choices import choose, learned, registered, simulated
from lab.bench.papers.wisv.published import RATES_BPS
from lab.bench.papers.wisv.rounds import Method
from lab.bench.papers.wisv.windows import A40_PASS_S, best_speed
from outrider.protocols.registry import PROTOCOLS


@pytest.mark.parametrize("protocol", ["token_ids", "dsd", "dssd"])
@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_the_policy_finds_the_best_window(protocol: str, rate_bps: float) -> None:
    for pass_s, drafts_only in ((0.0, True), (A40_PASS_S, False), (0.1, False)):
        found = choose(protocol, rate_bps, pass_s=pass_s, drafts_only=drafts_only)
        assert found.tokens_per_s > 0.98 * found.best_tokens_per_s
        assert found.window > 0 or not drafts_only


def test_the_policy_drafts_only_where_the_target_is_slow() -> None:
    assert choose("token_ids", 500e6, pass_s=A40_PASS_S, drafts_only=False).window == 0
    assert choose("token_ids", 500e6, pass_s=0.1, drafts_only=False).window > 0
    free = choose("token_ids", 500e6, pass_s=0.0, drafts_only=True)
    ours = best_speed(Method.SD_GREEDY, 500e6, bonus=True)
    assert free.window == ours.window
    assert free.tokens_per_s == pytest.approx(ours.tokens_per_s, rel=1e-3)


def test_protocols_that_are_not_registered_are_left_out() -> None:
    assert registered(["token_ids", "no_such_protocol"]) == ("token_ids",)
    assert set(registered(["wisv_full", "wisv_selective"])) == {"wisv_full", "wisv_selective"} & set(PROTOCOLS)


def test_only_what_the_simulator_charges_is_simulated() -> None:
    assert simulated("token_ids", 20e6)
    assert not simulated("dssd", 20e6)  # the row behind a rejection


def test_learning_is_deterministic_and_near_the_best_fixed_window() -> None:
    found = learned("token_ids", 20e6, pass_s=0.1, fixed_window=9, responses=8)
    assert found == learned("token_ids", 20e6, pass_s=0.1, fixed_window=9, responses=8)
    assert 0.9 * found.fixed_tokens_per_s < found.tokens_per_s

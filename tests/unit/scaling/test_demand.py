"""What is promised and waits, in verifiers: by whatever is shortest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import LinearCostModel
from outrider.scaling.demand import AdmissionLoad, demand_of, load_of_report, verifier_load
from tests.unit.admission.asking import EIGHT, RULES, VERIFIER, admission, ask, asked

ONE = AdmissionLoad(load_limit=0.8, kv_limit=1000.0, places=10.0)


def test_promises_count_by_what_they_need_of_what_is_allowed() -> None:
    found = demand_of([replace(ONE, load=0.6, queued_load=0.2), replace(ONE, load=0.4)])
    assert found is not None
    assert [found.all, found.active] == pytest.approx([1.5, 1.25])
    assert found.of == "load"


def test_what_is_shortest_decides() -> None:
    verifiers = [replace(ONE, load=0.4, kv_tokens=900.0, responses=3.0)]
    found = demand_of(verifiers)
    assert found is not None
    assert found.all == pytest.approx(0.9)
    assert found.of == "memory"
    found = demand_of(verifiers, unrouted=20.0)
    assert found is not None
    assert [found.all, found.active] == pytest.approx([2.3, 0.9])
    assert found.of == "places"


def test_nobody_says_what_it_allows() -> None:
    assert demand_of([]) is None
    assert demand_of([AdmissionLoad(load=3.0)]) is None


def test_an_idle_one_is_not_asked_what_it_would_allow() -> None:
    found = demand_of([replace(ONE, load=0.3, load_limit=0.4), ONE])
    assert found is not None
    assert found.all == pytest.approx(0.75)


def test_figures_travel_by_name() -> None:
    load = replace(ONE, load=0.5, started_in_s=3.0)
    assert verifier_load(load.figures() | {"ray_serve_running": 3.0}) == load
    assert verifier_load({"load": 0.5}) is None, "not all is there yet"


def test_as_admission_reports_it() -> None:
    to, cheap = admission(max_active=100), replace(VERIFIER, kv_tokens=100_000)
    assert load_of_report(to.report()) == AdmissionLoad(places=100), "it has decided nothing"
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(13)), *(asked(f"b{i}") for i in range(4)), verifier=cheap)
    found = load_of_report(to.report(), started_in_s=7.0)
    assert found.load == pytest.approx(0.8, rel=1e-3)
    assert found.queued_load == pytest.approx(0.24, rel=1e-3)
    assert found.load_limit == pytest.approx(RULES.max_load, rel=1e-3)
    assert found.kv_limit == 100_000
    assert found.queued_kv_tokens == pytest.approx(3 / 14 * found.kv_tokens)
    assert (found.responses, found.queued_responses, found.places, found.started_in_s) == (17, 3, 100, 7.0)
    one = demand_of([found])
    assert one is not None
    assert [one.all, one.active] == pytest.approx([1.3, 1.0], abs=0.01)


def test_those_kept_behind_others_are_priced_as_well() -> None:
    to = admission(max_active=2, best_effort_floor=0.0)
    ask(to, *(asked(f"r{i}", EIGHT) for i in range(5)))
    assert to.report().queued_load == pytest.approx(0.24, rel=1e-3)


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=20), st.floats(0.1, 1.0))
def test_demand_is_what_was_promised_over_what_one_allows(loads: list[float], limit: float) -> None:
    found = demand_of([replace(ONE, load=load, load_limit=limit) for load in loads])
    assert found is not None
    assert found.all == pytest.approx(sum(loads) / limit)
    assert found.active <= found.all + 1e-9


def test_a_costlier_verifier_is_asked_for_more() -> None:
    to = admission(max_active=100)
    ask(to, asked("r", EIGHT))
    dear = admission(max_active=100)
    ask(dear, asked("r", EIGHT), verifier=replace(VERIFIER, cost_model=LinearCostModel(0.02, 0.0, 0.0, 0.0)))
    cheap_demand, dear_demand = (demand_of([load_of_report(one.report())]) for one in (to, dear))
    assert cheap_demand is not None
    assert dear_demand is not None
    assert dear_demand.all == pytest.approx(2.0 * cheap_demand.all, rel=1e-3)

"""Other rules for where a request goes, and the product's beside them."""

import pytest

from lab.simulation.fleet.rivals import ServePrefixTree, shortest
from lab.simulation.fleet.routes import Routes
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.fleet.scenario import RouterRules, Routing
from tests.unit.lab.simulation.fleet.fleets import fleet, talks


def test_serve_s_tree_prefers_who_knows_most_and_else_who_has_least() -> None:
    tree = ServePrefixTree[int]()
    assert tree.candidates([1, 2, 3], [0, 1, 2]) == [0, 1, 2]
    tree.insert([1, 2, 3], 0)
    assert tree.candidates([1, 2, 4], [0, 1, 2]) == [0]
    assert tree.candidates([9], [0, 1, 2]) == [1, 2]
    tree.insert([1], 1)
    assert tree.candidates([1], [0, 1, 2]) == [0, 1]
    assert tree.candidates([1, *range(10, 20)], [0, 1, 2]) == [2], "less than a tenth is known"
    assert tree.candidates([1, 2], [1, 2]) == [1], "as far as those know it that are there"
    tree.forget(0)
    assert tree.candidates([2, 3], [0, 2]) == [0, 2]


def test_of_candidates_the_least_loaded_with_a_place_is_taken() -> None:
    loads = {0: 3, 1: 1, 2: 1}
    assert shortest([0, 1, 2], loads, 3) == 1
    assert shortest([0], loads, 3) is None


@pytest.mark.parametrize("by", list(Routing))
def test_whatever_the_rule_who_has_room_is_found_and_who_is_gone_is_not(by: Routing) -> None:
    routes = Routes(RouterRules(by=by, ingresses=2), capacity=2)
    assert routes.send([1, 2], 0) is None, "there is nobody"
    for coordinator in range(3):
        routes.add(coordinator)
    sent = [routes.send([1, 2, 3], turn % 2) for turn in range(6)]
    assert sorted(sent, key=str) == [0, 0, 1, 1, 2, 2]
    assert routes.send([1, 2, 3], 0) is None
    routes.drop(1)
    for coordinator in (0, 0, 2, 2):
        routes.ended(coordinator)
    assert 1 not in {routes.send([1, 2, 3], turn % 2) for turn in range(4)}


def test_with_homes_several_ingresses_find_what_one_does_and_one_loses_nothing() -> None:
    def hits(by: Routing, ingresses: int) -> float:
        of = fleet(traffic=(talks(),), router=RouterRules(by=by, ingresses=ingresses), duration_s=60.0)
        return simulate_fleet(of).hit_share

    one, alone, homes = hits(Routing.KNOWN, 1), hits(Routing.KNOWN, 8), hits(Routing.PREFIX, 8)
    assert homes > alone + 0.5 * (one - alone), (one, alone, homes)
    assert hits(Routing.PREFIX, 1) > one - 0.02

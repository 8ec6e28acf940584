"""Several ingresses route requests to coordinators that come and go."""

from lab.simulation.fleet.routes import Routes
from lab.simulation.fleet.run import simulate_fleet
from lab.simulation.fleet.scenario import RouterRules
from tests.unit.lab.simulation.fleet.fleets import fleet, talks


def test_coordinators_with_room_are_found_and_dropped_ones_are_not() -> None:
    routes = Routes(RouterRules(ingresses=2), capacity=2)
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


def test_several_ingresses_find_nearly_what_one_finds() -> None:
    def hits(ingresses: int) -> float:
        of = fleet(traffic=(talks(),), router=RouterRules(ingresses=ingresses), duration_s=60.0)
        return simulate_fleet(of).hit_share

    assert hits(8) > 0.9 * hits(1)

"""Leases go where the fleet actor's go."""

from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.lease_table import LeaseTable
from actors.messages import DrafterId
from lab.simulation.fleet.drafters import DrafterPool, SimDrafter
from outrider.contracts.requests import GenerationId
from tests.unit.lab.simulation.fleet.fleets import drafters

CAPACITIES = (1, 2, 2, 4)


@given(st.lists(st.tuples(st.sampled_from(["lease", "release", "leave", "return"]), st.integers(0, 11)), max_size=80))
def test_a_lease_goes_to_whom_the_fleet_actor_would_give_it(happened: list[tuple[str, int]]) -> None:
    groups = tuple(drafters(name=f"g{i}", count=1, max_generations=most) for i, most in enumerate(CAPACITIES))
    pool, table = DrafterPool(groups, seed=0), LeaseTable()
    names = [DrafterId(f"g{i}", 0) for i in range(len(CAPACITIES))]
    for name, most in zip(names, CAPACITIES, strict=True):
        table.add(name, most)
        table.mark_ready(name)
    held: dict[int, SimDrafter] = {}
    for what, number in happened:
        generation, device = GenerationId(str(number)), number % len(CAPACITIES)
        if what == "lease" and number not in held:
            expected, found = table.lease(generation), pool.lease(number)
            assert (None if found is None else names[found.number]) == expected
            if found is not None:
                held[number] = found
        elif what == "release" and number in held:
            table.release(generation)
            pool.release(held.pop(number), number)
        elif what == "leave" and pool.drafter(device).present:
            lost = pool.depart(device)
            assert {GenerationId(str(one)) for one in lost} == table.mark_lost(names[device])
            for one in lost:
                del held[one]
        elif what == "return" and not pool.drafter(device).present:
            table.mark_ready(names[device])
            pool.restore(device, 0.0)

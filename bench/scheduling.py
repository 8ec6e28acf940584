"""How long a policy takes to plan one batch, by how many blocks are pending: ``python -m bench.scheduling``.

The queue is mixed: four promised speeds and best effort, some blocks cold, some already late. Costs are WISP's
(Table 12). The least and the median of several plans are shown; the least says what the code needs, the median what it
took beside everything else on the machine.
"""

import argparse
import random
import time
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy
from outrider.scheduling.registry import SCHEDULING

_COSTS = LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 1.486e-2, relative_guard=0.05)
_LIMITS = BatchLimits(max_blocks=256, max_new_tokens=8192, prefill_chunk_tokens=512, max_memory_blocks=16_384)


def mixed_queue(blocks: int, now_s: float, seed: int = 0) -> list[PendingVerification]:
    """So many pending blocks, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 (a workload, no secret)
    queue = []
    for index in range(blocks):
        speed = rng.choice((0.0, 2.0, 4.0, 6.0, 8.0))
        arrived_at_s = now_s - rng.random()
        cold, prefix = rng.random() < 0.02, rng.randint(100, 2000)
        queue.append(
            PendingVerification(
                generation=f"generation-{index}",
                round=rng.randint(0, 99),
                arrived_at_s=arrived_at_s,
                deadline_at_s=arrived_at_s + rng.uniform(0.1, 2.0) if speed and not cold else float("inf"),
                expected_tokens=rng.uniform(1.5, 4.0),
                cost=VerifyCost(prefix, 0) if cold else VerifyCost(6, prefix),
                tokens_per_s=speed,
                memory_blocks=prefix // 16 + 1,
            )
        )
    return queue


def planning_s(policy: SchedulingPolicy, queue: Sequence[PendingVerification], now_s: float, plans: int) -> list[float]:
    """Seconds of each of so many plans of the same queue."""
    seconds = []
    for _ in range(plans):
        began_s = time.perf_counter()
        policy.plan(queue, now_s, _LIMITS, _COSTS)
        seconds.append(time.perf_counter() - began_s)
    return seconds


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="outrider bench scheduling", description=__doc__)
    parser.add_argument("--pending", type=int, nargs="+", default=[10, 100, 1_000, 10_000], help="sizes of the queue")
    parser.add_argument("--plans", type=int, default=50, help="plans of each queue")
    arguments = parser.parse_args(argv)
    now_s = 10.0
    table = Table("policy", "pending", "in the batch", "least, ms", "median, ms", title="Planning one batch")
    for name, scheduling in SCHEDULING.items():
        for blocks in arguments.pending:
            queue = mixed_queue(blocks, now_s)
            members = len(scheduling.policy.plan(queue, now_s, _LIMITS, _COSTS).batch)
            took_s = planning_s(scheduling.policy, queue, now_s, arguments.plans)
            table.add_row(name, str(blocks), str(members), f"{min(took_s) * 1e3:.3f}", f"{median(took_s) * 1e3:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()

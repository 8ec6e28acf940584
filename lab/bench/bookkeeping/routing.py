"""Cost of an ingress's choice of a coordinator: index at its limit, among few coordinators and many.

Conversations begin with one of several system prompts, followed by text of their own. A *next turn* belongs to a
conversation that the ingress knows, a *first* one does not, so its coordinator is found by hash. Looking up is
``Affinity.tokens`` for both; *rank* is ``scores.ranked``, as Serve is given all of them in order.
"""

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from cluster.reports.tables import show_table
from outrider.routing.affinity import Affinity
from outrider.routing.prefix_index import BLOCK_TOKENS, MAX_BLOCKS, leading_digests
from outrider.routing.scores import ranked

_SYSTEM_PROMPTS, _SYSTEM_TOKENS, _OWN_TOKENS = 200, 400, 1600
_VOCABULARY, _PLACES = 50_000, 128


@dataclass(frozen=True, slots=True)
class RoutingCost:
    """One run with this many coordinators: CPU seconds per request, and the final size of the index."""

    coordinators: int
    prompt_tokens: int
    digests_s: float
    next_turn_s: float
    first_s: float
    rank_s: float
    note_s: float
    blocks: int
    index_bytes: int


def measured(coordinators: int, requests: int, repeats: int, max_blocks: int = MAX_BLOCKS) -> list[RoutingCost]:
    """Return ``repeats`` runs of ``requests`` requests."""
    return [_run(coordinators, requests, max_blocks, random.Random(run)) for run in range(repeats)]  # noqa: S311 (no secret)


def show(found: Sequence[Sequence[RoutingCost]]) -> None:
    """Print a table: the median of each row's runs."""
    names = ("digests_s", "next_turn_s", "first_s", "rank_s", "note_s")
    rows = []
    for runs in found:
        times = (f"{1e6 * median(getattr(run, name) for run in runs):.0f}" for name in names)
        held = f"{runs[0].blocks} blocks, {median(run.index_bytes for run in runs) / 2**20:.0f} MiB"
        rows.append((str(runs[0].coordinators), *times, held))
    heads = ("coordinators", "digests", "look up, next turn", "look up, first", "rank", "note", "index")
    show_table(f"Routing {_SYSTEM_TOKENS + _OWN_TOKENS} tokens: us of CPU a request", heads, rows)


def _run(coordinators: int, requests: int, max_blocks: int, chance: random.Random) -> RoutingCost:
    names = [f"coordinator {number}" for number in range(coordinators)]
    systems = [_tokens(chance, _SYSTEM_TOKENS) for _ in range(_SYSTEM_PROMPTS)]

    def conversation() -> list[bytes]:
        return leading_digests([*chance.choice(systems), *_tokens(chance, _OWN_TOKENS)], BLOCK_TOKENS)

    affinity: Affinity[str] = Affinity(max_blocks)
    before_bytes = _allocated_bytes()
    known = list[list[bytes]]()
    while len(affinity) < max_blocks:
        known.append(conversation())
        affinity.note(known[-1], chance.choice(names))
    index_bytes = _allocated_bytes() - before_bytes
    tracemalloc.stop()
    known = known[-max(1, len(known) // 2) :]
    firsts = [conversation() for _ in range(requests)]
    prompts = [_tokens(chance, _SYSTEM_TOKENS + _OWN_TOKENS) for _ in range(requests)]
    loads = {name: chance.randrange(_PLACES) for name in names}
    places = dict.fromkeys(names, _PLACES)
    blocks = len(affinity)
    return RoutingCost(
        coordinators=coordinators,
        prompt_tokens=_SYSTEM_TOKENS + _OWN_TOKENS,
        digests_s=_each_s(lambda each: leading_digests(prompts[each], BLOCK_TOKENS), requests),
        next_turn_s=_each_s(lambda each: affinity.tokens(known[each % len(known)], names), requests),
        first_s=_each_s(lambda each: affinity.tokens(firsts[each], names), requests),
        rank_s=_each_s(lambda _: ranked(names, {names[0]: _OWN_TOKENS}, loads, loads, places), requests),
        note_s=_each_s(lambda each: affinity.note(firsts[each], names[each % coordinators]), requests),
        blocks=blocks,
        index_bytes=index_bytes,
    )


def _allocated_bytes() -> int:
    """Bytes allocated since the first call."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


def _tokens(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(_VOCABULARY) for _ in range(count)]


def _each_s(do: Callable[[int], object], times: int) -> float:
    began_s = time.process_time()
    for each in range(times):
        do(each)
    return (time.process_time() - began_s) / times

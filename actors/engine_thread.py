"""Makes what drafter and verifier actors share: the thread that owns an engine, and its model's card.

Engines are not thread-safe, and torch counts its threads per calling thread.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from actors.messages import ModelCard
from outrider.contracts.drafting import DrafterEngine
from outrider.contracts.verifying import VerifierEngine
from outrider.models.identity import ModelIdentity
from outrider.wire.replies import DrafterCard

_Card = TypeVar("_Card", ModelCard, DrafterCard)

# Nice value: an engine gets two thirds of the time of processes that answer requests on the same cores. At 5 a flood of
# requests takes too much.
_BEHIND = 2


def engine_thread(threads: int, device: str) -> ThreadPoolExecutor:
    """Make a single-thread executor in which torch uses ``threads`` OpenMP threads.

    On CPUs it has a lower priority than processes that serve requests there, which compute little.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="engine", initializer=_begin, initargs=(threads, device))


def _begin(threads: int, device: str) -> None:
    torch.set_num_threads(threads)
    if device == "cpu":
        os.nice(_BEHIND)  # of this thread, and those that it begins


def card_of(kind: type[_Card], facts: ModelIdentity, engine: DrafterEngine | VerifierEngine) -> _Card:
    """Return an engine's card, with as long a context as it can hold; its model may allow more."""
    return kind(**{**vars(ModelIdentity.of(facts)), "max_context_tokens": engine.max_context_tokens})

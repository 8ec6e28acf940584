"""Named actors of which a cluster has one each, on its head: devices come and go."""

from typing import Any

import ray
from ray.actor import ActorHandle

ANYWHERE = "DEFAULT"  # said aloud, or Ray keeps what a coordinator starts inside that coordinator's placement group
CALLS_KEPT = False  # not by Ray's head, whose memory grows by hundreds of MiB an hour with an event of each of ours
_HEAD = "node:__internal_head__"  # Ray's own mark


def head_actor(kind: type, name: str, namespace: str, *arguments: object) -> "ActorHandle[Any]":
    """The cluster's one, created with these arguments if it does not exist. Asks the head: not on an event loop."""
    actor: Any = ray.remote(kind).options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        scheduling_strategy=ANYWHERE,
        num_cpus=0,
        resources={_HEAD: 0.001},
        enable_task_events=CALLS_KEPT,
    )
    handle: ActorHandle[Any] = actor.remote(*arguments)
    return handle

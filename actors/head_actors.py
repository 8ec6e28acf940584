"""Creates the named actors of which a cluster has one each, on its head node: other nodes come and go."""

from typing import Any

import ray
from ray.actor import ActorHandle

ANYWHERE = "DEFAULT"  # explicit: else Ray puts what a coordinator creates into that coordinator's placement group
CALLS_KEPT = False  # task events: with them the memory of Ray's head grows by hundreds of MiB an hour at our call rate
_HEAD = "node:__internal_head__"  # resource that Ray gives to the head node


def head_actor(kind: type, name: str, namespace: str, *arguments: object) -> "ActorHandle[Any]":
    """Return the cluster's actor, created with these arguments if it does not exist. Call it in a thread."""
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

"""Creates named actors that claim no processor; those of which a cluster has one each on its head node.

Other nodes come and go.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ANYWHERE = "DEFAULT"  # explicit: else Ray puts what a coordinator creates into that coordinator's placement group
CALLS_KEPT = False  # task events: with them the memory of Ray's head grows by hundreds of MiB an hour at our call rate
_HEAD = "node:__internal_head__"  # resource that Ray gives to the head node


def head_actor(kind: type, name: str, namespace: str, *arguments: object) -> "ActorHandle[Any]":
    """Return the cluster's actor, created with these arguments if it does not exist. Call it in a thread."""
    return named_actor(kind, name, namespace, {_HEAD: 0.001}, *arguments)


def named_actor(
    kind: type, name: str, namespace: str, resources: Mapping[str, float], *arguments: object
) -> "ActorHandle[Any]":
    """Return an actor on a node that has the resources, as ``head_actor`` does."""
    actor: Any = ray.remote(kind).options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        scheduling_strategy=ANYWHERE,
        num_cpus=0,
        resources=dict(resources),
        enable_task_events=CALLS_KEPT,
    )
    handle: ActorHandle[Any] = actor.remote(*arguments)
    return handle


async def run_once_here(function: Callable[..., Any], *arguments: object) -> Any:
    """Run a function on this node in a process that ends then, with all that it has loaded."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    task: Any = ray.remote(num_cpus=0, max_calls=1)(function).options(scheduling_strategy=here)
    return await task.remote(*arguments)

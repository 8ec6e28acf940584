"""How drafters are run: as detached named Ray actors, which outlive whoever started them."""

from typing import Any

import ray

from actors.drafter import DrafterActor
from actors.head_actors import ANYWHERE
from actors.messages import DrafterId
from actors.plain_handle import PlainHandle
from outrider.assembly.drafters import drafter_spec
from outrider.config.schema import DrafterGroupConfig


class DrafterActors:
    """Actors of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> Any:
        """The named actor, created if it does not exist; one whose resources are not in the cluster waits for them.

        Of one whose group is not trusted nothing but plain bytes are taken.
        """
        actor: Any = ray.remote(DrafterActor).options(
            name=drafter.actor_name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            scheduling_strategy=ANYWHERE,
            num_cpus=group.num_cpus,
            num_gpus=group.num_gpus,
            resources=dict(group.resources),
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(group.threads)}},
        )
        handle = actor.remote(drafter_spec(group, target), group.link, drafter.index)
        return handle if group.trusted else PlainHandle(handle)

    def restart(self, handle: Any) -> None:
        """Kill the process; Ray starts it anew under the same handle."""
        ray.kill(handle.ray_handle if isinstance(handle, PlainHandle) else handle, no_restart=False)

    def stop(self, drafter: DrafterId) -> None:
        """Kill the named actor for good, if it runs."""
        try:
            ray.kill(ray.get_actor(drafter.actor_name, namespace=self._namespace), no_restart=True)
        except ValueError:
            return  # it does not run

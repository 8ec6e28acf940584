"""Asks coordinators through Serve, from a process of the cluster.

Serve runs a handle's router on a thread of its own that outlives the cluster. A process that starts one cluster after
the other must not have one: when it exits, that thread may run into what is gone.
"""

from typing import Any

from ray import serve


class Inquirer:
    """A Ray actor."""

    def __init__(self, deployment: str, app_name: str) -> None:
        self._handle: Any = serve.get_deployment_handle(deployment, app_name)

    def ask(self, method: str, within_s: float) -> Any:
        """What some replica answers."""
        return getattr(self._handle, method).remote().result(timeout_s=within_s)

    def ask_all(self, method: str, within_s: float) -> list[Any]:
        """What each replica answers, in few words: Ray may crash on a broadcast's answer that is large."""
        answers: list[Any] = self._handle.broadcast(method).results(timeout_s=within_s)
        return answers

"""Clusters that several modules of tests share. One runs at a time: whoever asks for another ends the one before."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from tests.cluster.served import Service


@dataclass
class Clusters:
    """The one that runs, by its name; modules that name the same ``CLUSTER`` come one after the other."""

    _name: str = ""
    _ends: ExitStack = field(default_factory=ExitStack)
    _service: Service | None = None

    def get(self, name: str, start: Callable[[], AbstractContextManager[Service]]) -> Service:
        """The service of this name, started unless it runs."""
        if self._service is None or name != self._name:
            self.end()
            self._name, self._service = name, self._ends.enter_context(start())
        return self._service

    def end(self) -> None:
        """The one that runs, if any."""
        self._name, self._service = "", None
        self._ends.close()

"""Requests that make engines fail, for tests alone: Ray runs ``install`` in each process that a test's cluster starts.

What is poisoned is told by a request's seed. Nothing of this is reachable where Ray is started otherwise.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

FAILS_VERIFIERS, KILLS_VERIFIERS, FAILS_DRAFTERS = 666_001, 666_002, 666_003
HOOK = "tests.cluster.poison.with_poison"  # of ``RAY_RUNTIME_ENV_HOOK``


def with_poison(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """What processes are started with, and ``install``, for which they need to find the tests."""
    given = runtime_env or {}
    variables = {**given.get("env_vars", {}), "PYTHONPATH": str(Path(__file__).parents[2])}
    return {**given, "env_vars": variables, "worker_process_setup_hook": "tests.cluster.poison.install"}


def install() -> None:
    """Have whatever engine an actor of this process gets be one that can be poisoned."""
    import actors.drafter.actor  # noqa: PLC0415 (in the cluster's processes alone)
    import actors.verifier.actor  # noqa: PLC0415 (likewise)

    verifiers, drafters = vars(actors.verifier.actor), vars(actors.drafter.actor)
    stepped, build = verifiers["SteppedEngine"].__init__, drafters["build_drafter"]

    def begin(self: Any, engine: Any, *arguments: Any) -> None:
        stepped(self, PoisonedVerifier(engine), *arguments)

    def built(*arguments: Any) -> Any:
        from dataclasses import replace  # noqa: PLC0415

        drafter = build(*arguments)
        return replace(drafter, engine=PoisonedDrafter(drafter.engine))

    verifiers["SteppedEngine"].__init__ = begin
    drafters["build_drafter"] = built


class _Poisoned:
    """An engine, and the poisoned generations that it holds."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._seeds: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        """As it is."""
        return getattr(self._engine, name)

    def open(self, request: Any, *terms: Any) -> None:
        """Take note of the seed."""
        self._engine.open(request, *terms)
        self._seeds[request.generation] = request.params.seed

    def _any(self, seed: int, names: Collection[str]) -> bool:
        return any(self._seeds.get(name) == seed for name in names)


class PoisonedVerifier(_Poisoned):
    """Of a verifier."""

    def verify(self, blocks: Sequence[Any], resolutions: Sequence[Any] = ()) -> Any:
        """Fail, or as it is."""
        names = [block.generation for block in blocks]
        if self._any(FAILS_VERIFIERS, names):
            raise RuntimeError("poisoned")
        if self._any(KILLS_VERIFIERS, names):
            raise RuntimeError("CUDA error: device-side assert triggered (poisoned)")
        return self._engine.verify(blocks, resolutions)


class PoisonedDrafter(_Poisoned):
    """Of a drafter."""

    def step(self, among: Collection[str] | None = None) -> Any:
        """Fail, or as it is."""
        if self._any(FAILS_DRAFTERS, self._engine.started() if among is None else among):
            raise RuntimeError("poisoned")
        return self._engine.step(among)

"""What has no public place in Ray's core: how objects are read, an actor's record at the head, addresses, folders."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants, services, state, worker
from ray.actor import ActorHandle
from ray.core.generated import common_pb2

from outrider.contracts.errors import OutriderError

Read = Callable[[Any, bytes | None, Any, Any], Any]  # data, metadata, reference, tensors

_ErrorType: Any = common_pb2.ErrorType  # type: ignore[attr-defined]  # made when it is imported
ACTOR_DIED: int = _ErrorType.Value("ACTOR_DIED")
TASK_CANCELLED: int = _ErrorType.Value("TASK_CANCELLED")
TASK_EXECUTION_EXCEPTION: int = _ErrorType.Value("TASK_EXECUTION_EXCEPTION")
_START_S, _TOO_SLOW = 30, "timed out during startup"  # both are Ray's own, and fixed: it raises a plain Exception
RAW_BYTES: bytes = ray_constants.OBJECT_METADATA_TYPE_RAW  # metadata of an object that is not pickled


class RayStartError(OutriderError):
    """Ray does not start on this machine."""


def actor_id_of(handle: "ActorHandle[Any]") -> bytes:
    return handle._actor_id.binary()  # type: ignore[no-any-return]  # noqa: SLF001


def actor_row_of(handle: "ActorHandle[Any]") -> Mapping[str, Any]:
    """Return the head's record of an actor. Asks the head: call it in a thread."""
    found: dict[str, Any] = state.actors(handle._actor_id.hex())  # noqa: SLF001
    return found


def wrap_reader(kind: type, wrapped: Callable[[Read], Read]) -> None:
    """Have this process read all objects by ``wrapped(Ray's reader)``, unless its reader is a ``kind`` already."""
    ray_worker: Any = worker.global_worker
    context = ray_worker.get_serialization_context()
    if not isinstance(context._deserialize_object, kind):  # noqa: SLF001
        context._deserialize_object = wrapped(context._deserialize_object)  # noqa: SLF001


def cluster_address(address: str) -> str | None:
    """Return ``host:port`` of the cluster that ``auto`` means; it may have ended. None: there is none."""
    return services.canonicalize_bootstrap_address(address)


@contextmanager
def clusters_disabled() -> Iterator[None]:
    """Have this process take itself for one where Ray supports no clusters, so that nodes listen on loopback."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False  # was read when Ray was imported
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def init_in(folder: Path, **options: Any) -> None:
    """Start Ray as ``ray.init(**options)``, with its sessions in ``folder``.

    Raises:
        RayStartError: Ray gave up waiting for its own processes.
    """
    try:
        ray.init(_temp_dir=str(folder), **options)
    except Exception as error:
        if _TOO_SLOW not in str(error):
            raise
        needed = f"Ray needs its processes on this machine to start within {_START_S} s, found that they did not"
        raise RayStartError(
            f"{needed}; end other work here and try again (logs: {folder}/session_latest/logs)"
        ) from error

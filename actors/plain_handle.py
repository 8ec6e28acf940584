"""A drafter's handle that takes nothing from it but plain bytes, and of these no more than a reply may have.

Ray unpickles what an actor returns, or raises, as soon as it arrives, whether anybody still waits for it or not. So the
actor is watched, not the call: of what a watched actor sends, Ray reads in this process only what it hands over as it
is (raw bytes), and what its own processes say of the actor (that it restarts, or its node is gone). Everything else is
left unread, and stands for nothing.

Ray brings an object to this node whole before anybody here sees its size. What is too large stays in the object store
(shared memory, bounded by that store): it is neither copied into this process nor decoded.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from ray._private import ray_constants, state, worker  # Ray has no public place for it
from ray.actor import ActorHandle
from ray.core.generated import common_pb2
from ray.exceptions import ActorDiedError, TaskCancelledError

from actors.plain_replies import Reply, read_reply, reply_bytes
from actors.tcp_counts import Address

Read = Callable[[Any, bytes | None, Any, Any], Any]  # data, metadata, reference, tensors

_WATCHED: set[bytes] = set()  # ids of actors
_ErrorType: Any = common_pb2.ErrorType  # type: ignore[attr-defined]  # made when it is imported
# What Ray would unpickle a cause of, without it.
_WITHOUT_CAUSE: dict[int, Callable[[], Exception]] = {
    _ErrorType.Value("ACTOR_DIED"): ActorDiedError,
    _ErrorType.Value("TASK_CANCELLED"): TaskCancelledError,
}
_PICKLED = _ErrorType.Value("TASK_EXECUTION_EXCEPTION")
_MOST_ERROR_BYTES = 2**16  # that Ray says of an actor


class PlainHandle:
    """Has the methods of a drafter that fleet and coordinators call, each called as a Ray actor's are."""

    def __init__(self, handle: "ActorHandle[Any]") -> None:
        """Around Ray's own handle; may be sent to other processes."""
        self.ray_handle = handle

    def __getattr__(self, name: str) -> "PlainMethod":
        """One of the methods."""
        if name.startswith("_") or name == "ray_handle":
            raise AttributeError(name)
        return PlainMethod(self.ray_handle, name)


class PlainMethod:
    def __init__(self, handle: "ActorHandle[Any]", name: str, most_bytes: int | None = None) -> None:
        """``most_bytes``: that its reply may have; None: what the method's may ever have."""
        self._handle, self._name = handle, name
        self._most_bytes = reply_bytes(name) if most_bytes is None else most_bytes

    def at_most(self, most_bytes: int) -> "PlainMethod":
        """The same, of which a larger reply is not read."""
        return PlainMethod(self._handle, self._name, most_bytes)

    def remote(self, *arguments: object) -> "PlainReference":
        """Call it; the reply may be awaited."""
        watch(self._handle)
        return PlainReference(self._handle.reply.remote(self._name, *arguments), self._most_bytes)


class PlainReference:
    """A reply that is to come. Nobody has to wait for it."""

    def __init__(self, reference: Any, most_bytes: int) -> None:
        self._reference, self._most_bytes = reference, most_bytes

    def __await__(self) -> Generator[Any, None, Reply]:
        """The reply; raises what ``read_reply`` does."""
        data = yield from self._reference.__await__()
        return read_reply(data, self._most_bytes)


def watch(handle: "ActorHandle[Any]") -> None:
    """From now on this process reads nothing but plain bytes of what an actor sends."""
    _WATCHED.add(handle._actor_id.binary())  # noqa: SLF001 (as above)
    ray_worker: Any = worker.global_worker
    context = ray_worker.get_serialization_context()
    if not isinstance(context._deserialize_object, PlainReader):  # noqa: SLF001 (as above)
        context._deserialize_object = PlainReader(context._deserialize_object, is_watched)  # noqa: SLF001 (as above)


def is_watched(reference: Any) -> bool:
    """Whether an object is what a task of a watched actor has returned."""
    return reference is not None and reference.task_id().actor_id().binary() in _WATCHED


class PlainReader:
    """Reads objects as Ray does, of watched actors plain ones only, which are not copied; the others are None."""

    def __init__(self, read: Read, watched: Callable[[Any], bool]) -> None:
        self._read, self._watched = read, watched

    def __call__(self, data: Any, metadata: bytes | None, reference: Any, tensors: Any = None) -> Any:
        """One object, or the error that it stands for."""
        if not self._watched(reference):
            return self._read(data, metadata, reference, tensors)
        kind = (metadata or b"").split(b",")[0]
        if kind == ray_constants.OBJECT_METADATA_TYPE_RAW:
            return b"" if data is None else memoryview(data).cast("B")
        if not kind.isdigit() or int(kind) == _PICKLED or _size_bytes(data) > _MOST_ERROR_BYTES:
            return None
        without_cause = _WITHOUT_CAUSE.get(int(kind))
        return self._read(data, kind, reference, None) if without_cause is None else without_cause()


def address_of(handle: PlainHandle) -> Address | None:
    """Where an actor listens; None while it is nowhere. Asks the head: not on an event loop."""
    return listens_at(actor_row(handle))


def actor_row(handle: PlainHandle) -> Mapping[str, Any]:
    """What Ray's head says of an actor. Asks the head: not on an event loop."""
    found: dict[str, Any] = state.actors(handle.ray_handle._actor_id.hex())  # noqa: SLF001 (as above)
    return found


def listens_at(row: Mapping[str, Any]) -> Address | None:
    """Where an actor listens, from the moment that a process of it runs on some node."""
    address = row.get("Address", {})
    return (address["IPAddress"], address["Port"]) if address.get("Port") else None


def _size_bytes(data: Any) -> int:
    return 0 if data is None else memoryview(data).nbytes

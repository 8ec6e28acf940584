"""Calls a drafter so that its replies are read as plain bytes of bounded size and never unpickled.

A device is not trusted, and unpickling runs code. Ray unpickles what an actor returns or raises as soon as it arrives,
even if no caller waits any more. So the actor is marked, not the call: of a watched actor's objects this process reads
only raw bytes, and errors that Ray's own processes report of it (it restarts, or its node is gone). All other objects
are read as None.

Ray brings an object to this node whole before its size is visible here. One that is too large stays in the object store
(shared memory, bounded by that store): it is neither copied into this process nor decoded.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, TaskCancelledError

from actors.ray_internals.core import (
    ACTOR_DIED,
    RAW_BYTES,
    TASK_CANCELLED,
    TASK_EXECUTION_EXCEPTION,
    Read,
    actor_id_of,
    actor_row_of,
    wrap_reader,
)
from actors.tcp_counts import Address
from outrider.versions import MESSAGES_BEFORE_RANGES
from outrider.wire.replies import Reply, read_reply, reply_bytes

_WATCHED: set[bytes] = set()  # ids of actors; never removed from, as a reply may arrive at any time
# Errors whose cause Ray would unpickle: they are raised without it.
_WITHOUT_CAUSE: dict[int, Callable[[], Exception]] = {
    ACTOR_DIED: ActorDiedError,
    TASK_CANCELLED: TaskCancelledError,
}
_MOST_ERROR_BYTES = 2**16  # largest error of Ray's own processes that is read


class PlainHandle:
    """Handle of a drafter whose methods are called as those of a Ray handle. May be sent to other processes."""

    messages = MESSAGES_BEFORE_RANGES  # versions that the drafter knows; the fleet sets them to its card's

    def __init__(self, handle: "ActorHandle[Any]") -> None:
        self.ray_handle = handle

    def __getattr__(self, name: str) -> "PlainMethod":
        if name.startswith("_") or name == "ray_handle":  # unpickling asks for these before ``ray_handle`` is set
            raise AttributeError(name)
        return PlainMethod(self.ray_handle, name)


class PlainMethod:
    def __init__(self, handle: "ActorHandle[Any]", name: str, most_bytes: int | None = None) -> None:
        """``most_bytes``: largest reply that is read; None: the largest that the method may ever have."""
        self._handle, self._name = handle, name
        self._most_bytes = reply_bytes(name) if most_bytes is None else most_bytes

    def at_most(self, most_bytes: int) -> "PlainMethod":
        return PlainMethod(self._handle, self._name, most_bytes)

    def remote(self, *arguments: object) -> "PlainReference":
        """Call the method. The reply may be awaited, or left: the actor is watched before it can arrive."""
        watch(self._handle)
        return PlainReference(self._handle.reply.remote(self._name, *arguments), self._most_bytes)


class PlainReference:
    def __init__(self, reference: Any, most_bytes: int) -> None:
        self._reference, self._most_bytes = reference, most_bytes

    def __await__(self) -> Generator[Any, None, Reply]:
        data = yield from self._reference.__await__()
        return read_reply(data, self._most_bytes)


def watch(handle: "ActorHandle[Any]") -> None:
    """Read nothing but plain bytes of an actor's objects in this process from now on.

    Work-around: Ray has no hook for this, so the deserialiser of this process's worker is wrapped, once.
    """
    _WATCHED.add(actor_id_of(handle))
    wrap_reader(PlainReader, lambda read: PlainReader(read, is_watched))


def is_watched(reference: Any) -> bool:
    """Return whether an object is the result of a watched actor's task."""
    return reference is not None and reference.task_id().actor_id().binary() in _WATCHED


class PlainReader:
    """Reads objects as Ray does; of watched actors raw bytes only, as a view and not a copy. Their others are None."""

    def __init__(self, read: Read, watched: Callable[[Any], bool]) -> None:
        self._read, self._watched = read, watched

    def __call__(self, data: Any, metadata: bytes | None, reference: Any, tensors: Any = None) -> Any:
        if not self._watched(reference):
            return self._read(data, metadata, reference, tensors)
        kind = (metadata or b"").split(b",")[0]
        if kind == RAW_BYTES:
            return b"" if data is None else memoryview(data).cast("B")
        if not kind.isdigit() or int(kind) == TASK_EXECUTION_EXCEPTION or _size_bytes(data) > _MOST_ERROR_BYTES:
            return None
        without_cause = _WITHOUT_CAUSE.get(int(kind))
        return self._read(data, kind, reference, None) if without_cause is None else without_cause()


def address_of(handle: PlainHandle) -> Address | None:
    """Return where an actor listens; None while no process runs. Asks the head: call it in a thread."""
    return listens_at(actor_row(handle))


def actor_row(handle: PlainHandle) -> Mapping[str, Any]:
    """Return the head's record of an actor. Asks the head: call it in a thread."""
    return actor_row_of(handle.ray_handle)


def listens_at(row: Mapping[str, Any]) -> Address | None:
    """Return where an actor listens; known from the moment that a process of it runs on some node."""
    address = row.get("Address", {})
    return (address["IPAddress"], address["Port"]) if address.get("Port") else None


def _size_bytes(data: Any) -> int:
    return 0 if data is None else memoryview(data).nbytes

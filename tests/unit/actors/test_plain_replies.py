"""Replies of untrusted drafters: what is written is read, what is anything else is not, and nothing is unpickled."""

import asyncio
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray._private import ray_constants
from ray.core.generated import common_pb2
from ray.exceptions import ActorDiedError, TaskCancelledError

from actors.messages import Answer, Holding, ModelCard
from actors.plain_handle import PlainReader, PlainReference
from actors.plain_replies import Reply, plain, plain_failure, read_reply
from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, DraftingFailedError

CARD = ModelCard("tiny", "model", "tokens", 64, (2, 3), 256)


HOLDING = Holding(("a", "b"), 2**64 - 1, 7)
NO_COUNTS = b"\x03" + bytes(16)


@pytest.mark.parametrize(
    "reply", [None, Answer(b"block", 0.25), Answer(b"", 0.0), CARD, Holding(()), HOLDING], ids=repr
)
def test_what_is_written_is_read(reply: Reply) -> None:
    assert read_reply(plain(reply)) == reply


def test_a_failure_is_told_by_its_kind() -> None:
    with pytest.raises(ContextTooLongError, match="no room"):
        read_reply(plain_failure(ContextTooLongError("no room")))
    with pytest.raises(DrafterBrokenError, match=r"failed: RuntimeError\('nan'\)"):
        read_reply(plain_failure(RuntimeError("nan")))


@given(st.binary(max_size=64) | st.builds(lambda kind, rest: bytes([kind]) + rest, st.integers(0, 6), st.binary()))
def test_any_bytes_are_a_reply_or_refused(data: bytes) -> None:
    try:
        reply = read_reply(data)
    except (DrafterBrokenError, ContextTooLongError, DraftingFailedError):
        return
    assert reply is None or isinstance(reply, (Answer, ModelCard, Holding))


@pytest.mark.parametrize(
    "data",
    [
        *(b"", None, 3, "text", Answer(b"", 0.0), b"\x01", b"\x01" + b"\xff" * 8),
        *(b"\x03[]", NO_COUNTS, NO_COUNTS + b"[1]", NO_COUNTS + b"[" * 10**5),
    ],
)
def test_no_reply_at_all_is_refused(data: object) -> None:
    with pytest.raises(DrafterBrokenError, match="needs a reply in plain bytes"):
        read_reply(data)


GONE_OFF: list[str] = []


def go_off(how: str) -> None:
    GONE_OFF.append(how)


class Bomb:
    """Goes off where it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """To be read as a call."""
        return go_off, ("unpickled",)


def as_ray_reads(data: bytes, metadata: bytes | None, _reference: object, _tensors: object) -> object:
    """Unpickles all but raw bytes, as Ray does."""
    return data if metadata == ray_constants.OBJECT_METADATA_TYPE_RAW else pickle.loads(data)


def code(name: str) -> bytes:
    kinds: Any = common_pb2.ErrorType  # type: ignore[attr-defined]  # made when it is imported
    return str(kinds.Value(name)).encode()


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        (ray_constants.OBJECT_METADATA_TYPE_PYTHON, None),
        (ray_constants.OBJECT_METADATA_TYPE_CROSS_LANGUAGE, None),
        (ray_constants.OBJECT_METADATA_TYPE_ACTOR_HANDLE, None),
        (code("TASK_EXECUTION_EXCEPTION"), None),
        (code("TASK_EXECUTION_EXCEPTION") + b",x", None),
        (b"anything", None),
        (None, None),
        (code("ACTOR_DIED"), ActorDiedError),
        (code("TASK_CANCELLED"), TaskCancelledError),
    ],
)
def test_nothing_of_a_watched_actor_is_unpickled(metadata: bytes | None, read: type | None) -> None:
    reader = PlainReader(as_ray_reads, lambda reference: reference == "watched")
    found = reader(pickle.dumps(Bomb()), metadata, "watched", None)
    assert found is None if read is None else isinstance(found, read)
    assert GONE_OFF == []
    reader(pickle.dumps(Bomb()), metadata, "another", None)
    assert GONE_OFF.pop() == "unpickled", "others' are read as ever"


def test_raw_bytes_of_a_watched_actor_arrive_as_they_are() -> None:
    reader = PlainReader(as_ray_reads, lambda _: True)
    assert reader(b"as it is", ray_constants.OBJECT_METADATA_TYPE_RAW, "watched", None) == b"as it is"


def test_a_reply_is_awaited_as_a_reference_is() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        answered.set_result(plain(Answer(b"x", 1.0)))
        assert await PlainReference(answered) == Answer(b"x", 1.0)
        bad: asyncio.Future[object] = loop.create_future()
        bad.set_result(None)
        with pytest.raises(DrafterBrokenError):
            await PlainReference(bad)

    asyncio.run(run())

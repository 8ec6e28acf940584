"""Replies of untrusted drafters: what is written is read, what is anything else is not, and nothing is unpickled."""

import asyncio
import json
import pickle
import tracemalloc
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray._private import ray_constants
from ray.core.generated import common_pb2
from ray.exceptions import ActorDiedError, TaskCancelledError

from actors.plain_handle import PlainReader, PlainReference
from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, DraftingFailedError
from outrider.versions import VERSIONS, VersionRange, Versions
from outrider.wire.replies import (
    Answer,
    DrafterCard,
    DrafterHoldings,
    Reply,
    UnreadableReplyError,
    answer_bytes,
    holding,
    holding_bytes,
    plain,
    plain_failure,
    read_reply,
    reply_bytes,
)

CARD = DrafterCard("tiny", "model", "tokens", 64, (2, 3), 256)


LAST_RELEASES_CARD = (
    b'{"name":"tiny","model_hash":"model","token_map_hash":"tokens","vocab_size":64,"eos_token_ids":[2,3],'
    b'"max_context_tokens":256,"protocol_version":6,"noise_version":2,"machine":null}'
)
HOLDING = DrafterHoldings(("a", "b"), 2**64 - 1, 7)
NO_COUNTS = b"\x03" + bytes(16)


@pytest.mark.parametrize(
    "reply", [None, Answer(b"block", 0.25), Answer(b"", 0.0), CARD, DrafterHoldings(()), HOLDING], ids=repr
)
def test_what_is_written_is_read(reply: Reply) -> None:
    assert read_reply(plain(reply)) == reply


def test_a_card_of_the_last_release_is_read_and_it_reads_ours() -> None:
    told = Versions(VersionRange(6, 6), VersionRange(2, 2), VersionRange(2, 2))
    assert read_reply(b"\x02" + LAST_RELEASES_CARD) == replace(CARD, versions=told)
    ours, theirs = json.loads(plain(CARD)[1:]), json.loads(LAST_RELEASES_CARD)
    assert {key: ours.get(key) for key in theirs} == theirs


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
    assert reply is None or isinstance(reply, (Answer, DrafterCard, DrafterHoldings))


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


SIZES = (0, 1, 10**5, 10**7)
LIMITS = {name: reply_bytes(name) for name in ("card", "prove", "open", "held", "close", "forget")}


def names_bytes(count: int) -> bytes:
    """A list of so many names, as a device may make it."""
    return plain(DrafterHoldings(()))[:-2] + b"[" + b",".join([b'"g"'] * count) + b"]"


@pytest.mark.parametrize("count", SIZES)
def test_a_list_of_names_is_read_within_its_bound_and_not_copied_beyond_it(count: int) -> None:
    data, readable = memoryview(names_bytes(count)), count <= 1
    tracemalloc.start()
    try:
        if readable:
            assert len(holding(read_reply(data, reply_bytes("held")), 128)[1]) == count
        else:
            with pytest.raises(UnreadableReplyError, match="needs a reply of at most 65536 bytes"):
                read_reply(data, reply_bytes("held"))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**20


def test_more_names_than_a_device_may_hold_are_refused_though_they_are_few_bytes() -> None:
    with pytest.raises(UnreadableReplyError, match="at most 128 generations, found 129"):
        holding(read_reply(names_bytes(129), reply_bytes("held")), 128)
    with pytest.raises(UnreadableReplyError, match="found a DrafterCard"):
        holding(CARD, 128)


@pytest.mark.parametrize("max_generations", [1, 32, 1000, 100_000])
def test_a_device_of_any_size_can_tell_all_that_it_may_hold(max_generations: int) -> None:
    most = 2 * max_generations + 64
    honest = plain(DrafterHoldings(tuple(f"{number:0128d}.12/63"[-120:] for number in range(most))))
    assert len(holding(read_reply(honest, holding_bytes(most)), most)[1]) == most


@pytest.mark.parametrize("method", LIMITS)
def test_no_reply_of_64_mib_is_read(method: str) -> None:
    with pytest.raises(UnreadableReplyError, match="found 67108864; it was not read"):
        read_reply(memoryview(bytes(2**26)), LIMITS[method])


@pytest.mark.parametrize("method", LIMITS)
@pytest.mark.parametrize(
    "reply", [CARD, replace(CARD, model_hash="0" * 64), HOLDING, None, DrafterBrokenError("n" * 5000)], ids=repr
)
def test_honest_replies_are_within_bounds(method: str, reply: Reply | Exception) -> None:
    data = plain_failure(reply) if isinstance(reply, Exception) else plain(reply)
    assert len(data) <= LIMITS[method]
    assert len(data) <= answer_bytes(0)


@pytest.mark.parametrize(
    "card",
    [
        replace(CARD, name="n" * 201),
        replace(CARD, model_hash="h" * 201),
        replace(CARD, token_map_hash="t" * 60_000),
        replace(CARD, eos_token_ids=(1,) * 1025),
        replace(CARD, versions=replace(VERSIONS, noise=VersionRange(2, 10**300))),
        replace(CARD, vocab_size=2**63),
        replace(CARD, vocab_size=cast("Any", True)),
        replace(CARD, name=cast("Any", 3)),
    ],
    ids=lambda card: f"{card!r:.60}",
)
def test_a_card_has_short_names_and_numbers(card: DrafterCard) -> None:
    with pytest.raises(UnreadableReplyError, match="needs a reply in plain bytes"):
        read_reply(plain(card))


def test_a_name_is_short() -> None:
    with pytest.raises(UnreadableReplyError):
        read_reply(plain(DrafterHoldings(("g" * 201,))))


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
    data = b"as it is"
    found = reader(data, ray_constants.OBJECT_METADATA_TYPE_RAW, "watched", None)
    assert isinstance(found, memoryview)
    assert found.obj is data, "a view: nothing is copied before its size is looked at"
    assert reader(None, ray_constants.OBJECT_METADATA_TYPE_RAW, "watched", None) == b""


def test_an_error_that_names_no_actors_end_is_read_only_while_it_is_small() -> None:
    reader = PlainReader(lambda *_: "read", lambda _: True)
    assert reader(b"x", code("ACTOR_UNAVAILABLE"), "watched", None) == "read"
    assert reader(b"x" * (2**16 + 1), code("ACTOR_UNAVAILABLE"), "watched", None) is None


def test_a_reply_is_awaited_as_a_reference_is() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        answered.set_result(plain(Answer(b"x", 1.0)))
        assert await PlainReference(answered, 10) == Answer(b"x", 1.0)
        bad: asyncio.Future[object] = loop.create_future()
        bad.set_result(None)
        with pytest.raises(DrafterBrokenError):
            await PlainReference(bad, 10)
        large: asyncio.Future[bytes] = loop.create_future()
        large.set_result(plain(Answer(b"xy", 1.0)))
        with pytest.raises(UnreadableReplyError, match="at most 10 bytes, found 11"):
            await PlainReference(large, 10)

    asyncio.run(run())

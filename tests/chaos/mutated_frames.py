"""Mutated calls of a drafter's host, mutated frames at both ends of a stream, and places that it is said to be at.

In this process, over the product's host and its reader of frames: each call is answered by a reply of ours, and a
generation beside goes on as if nothing were.
"""

import asyncio
from contextlib import suppress
from ipaddress import ip_address
from random import Random

from actors.proved_streams import SECRET_BYTES, StreamPlace
from edge.frames import frame, read_frame
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, DraftingFailedError, MessageError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.session.session import CoordinatorSession
from outrider.wire.calls import write_call
from outrider.wire.replies import Answer, read_reply
from tests.chaos.mutated_messages import Counts
from tests.chaos.mutating import mutated_bytes
from tests.unit.actors.coordinator.transport_suite import VOCAB, SuiteHost
from tests.unit.engines.reference import target_alone
from tests.unit.engines.table_drafter import TableModel

_PER_ROUND = 100
_WINDOW = 3
_PROMPT = (5, 17, 8)
_GREEDY = SamplingParams(temperature=0.0)
_BIASED = SamplingParams(temperature=0.7, top_k=9, logit_bias=((3, 1.5),), presence_penalty=0.5, seed=2**64 - 1)
_TERMS = DraftTerms(WireFormat(VOCAB), (0,), 90)
_MOST_BYTES = 4096  # of a frame
_PLACE = StreamPlace("192.0.2.7", 25_000, bytes(range(SECRET_BYTES)))


def calls_and_frames(seed: int, number: int) -> Counts:
    """What coordinators tell a device over a stream, and what comes of streams that are damaged."""
    return asyncio.run(_tried(Random(f"frames {seed}"), number))


async def _tried(rng: Random, number: int) -> Counts:
    host, counts = SuiteHost(), Counts()
    session, tokens = CoordinatorSession(_TERMS.wire, "beside"), [*_PROMPT]
    await host.answer(write_call("open", OpenGeneration("beside", _PROMPT, _GREEDY), _TERMS))
    sound = [
        *map(write_call, ("card", "prove", "held")),
        write_call("open", OpenGeneration("bad", _PROMPT, _BIASED, (7,), cache_salt=b"salt"), _TERMS),
        write_call("exchange", "bad", session.encode_order(_request(0, tokens))),
        write_call("probe", b"sent", 9),
        write_call("close", "bad"),
    ]
    expected = target_alone(TableModel(VOCAB), _PROMPT, _GREEDY, _WINDOW + 60, VOCAB)
    while counts.tried < number:
        request = _request(len(tokens), tokens)
        order = session.encode_order(request)
        for _ in range(_PER_ROUND):
            bad = mutated_bytes(rng, rng.choice(sound), rng.choice(sound))
            counts.tried += 1
            counts.understood += _sound(await host.answer(bad))
            await _damaged(rng, bad, counts)
            _misplaced(rng, bad, counts)
        reply = read_reply(await host.answer(write_call("exchange", "beside", order)))
        assert isinstance(reply, Answer)
        draft = session.decode_answer(reply.data, request)
        assert isinstance(draft, Draft)
        at = len(tokens) - len(_PROMPT)
        assert list(draft.token_ids) == expected[at : at + _WINDOW]
        tokens = [*_PROMPT, *expected[: (at + 1) % 60]]
        if len(tokens) == len(_PROMPT):  # from its beginning
            session = CoordinatorSession(_TERMS.wire, "beside")
            await host.answer(write_call("open", OpenGeneration("beside", _PROMPT, _GREEDY), _TERMS))
    return counts


def _request(number: int, tokens: list[int]) -> DraftRequest:
    prefix_hash, plan = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens), DraftPlan("token_ids", _WINDOW)
    known = max(len(_PROMPT), len(tokens) - 1)
    return DraftRequest("beside", number, known, tuple(tokens[known:]), prefix_hash, plan)


def _sound(reply: bytes) -> bool:
    try:
        read_reply(reply)
    except (ContextTooLongError, DrafterBrokenError, DraftingFailedError):
        return False
    return True


async def _damaged(rng: Random, content: bytes, counts: Counts) -> None:
    """Read a damaged stream of two frames."""
    whole = frame(1, content) + frame(2, content)
    reader = asyncio.StreamReader()
    reader.feed_data(mutated_bytes(rng, whole, content))
    reader.feed_eof()
    counts.tried += 1
    try:
        while True:
            _, read = await read_frame(reader, lambda _: _MOST_BYTES)
            assert len(read) <= _MOST_BYTES
    except (MessageError, asyncio.IncompleteReadError):
        pass


def _misplaced(rng: Random, other: bytes, counts: Counts) -> None:
    """Read where a drafter says that it listens."""
    counts.tried += 1
    with suppress(MessageError):
        ip_address(StreamPlace.from_bytes(mutated_bytes(rng, _PLACE.to_bytes(), other)).host)

"""Mutated messages for what decodes them: sessions of both sides, replies in plain bytes, a verifier's calls.

In this process, over the real decoders and a real engine: only errors of ours come out, the next sound message is
understood, and a generation beside goes on as if nothing were.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TypeVar

from actors.messages import Closing, VerifyCall
from actors.verifier.actor import SteppedEngine
from outrider.contracts.drafting import DraftRequest, NeedsPrefix, NeedsRow
from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AutonomousRun, Block, OpenGeneration, Resolution, Unfinished, Unknown, Verified
from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, Reply, plain, read_reply
from tests.chaos.mutating import mutated_bytes, mutated_fields
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import Client, tiny_alone
from tests.unit.session.conversation import Conversation
from tests.unit.session.random_rounds import random_wire

_PER_MESSAGE = 50
_BESIDE = SamplingParams(temperature=0.0)
_BESIDE_TOKENS = 40
_LONGEST_DRAFT = 3
_PROMPT = [5, 17, 42, 8, 61, 30, 2]


@dataclass(slots=True)
class Counts:
    """Of mutated messages: how many were tried, and how many of these are sound by chance."""

    tried: int = 0
    understood: int = 0
    let_in: int = 0  # of connections on which some are sent


def orders_and_answers(seed: int, number: int) -> Counts:
    """What coordinators and devices send each other, at both ends; each understands the sound message after."""
    rng, counts = Random(f"messages {seed}"), Counts()
    other = b"\x21" * 20
    for conversation, request in _messages(rng):
        if counts.tried >= number:
            return counts
        order = conversation.coordinator.encode_order(request)
        before = deepcopy(conversation.drafter)
        for _ in range(_PER_MESSAGE):
            bad = mutated_bytes(rng, order, other)
            if bad != order and _understood(counts, partial(conversation.drafter.decode_order, bad)):
                conversation.drafter = deepcopy(before)
        _, heard = conversation.order(request)
        coordinator = deepcopy(conversation.coordinator)
        answer, told = conversation.answer(request, heard)
        again = deepcopy(coordinator)
        for _ in range(_PER_MESSAGE):
            bad = mutated_bytes(rng, answer, order)
            if bad != answer and _understood(counts, partial(again.decode_answer, bad, request)):
                again = deepcopy(coordinator)
        assert again.decode_answer(answer, request) == told
        if isinstance(told, NeedsPrefix | NeedsRow):
            conversation.reopen()
        other = answer
    return counts


def _messages(rng: Random) -> Iterator[tuple[Conversation, DraftRequest]]:
    while True:
        conversation = Conversation(rng, random_wire(rng, rng.choice([3, 257])))
        for _ in range(12):
            conversation.verdict()
            yield conversation, conversation.request()


def _understood(counts: Counts, read: Callable[[], object]) -> bool:
    """Whether a mutated message is taken for one; else it has to be refused by an error of ours."""
    counts.tried += 1
    try:
        read()
    except OutriderError:
        return False
    counts.understood += 1
    return True


def replies(seed: int, number: int) -> Counts:
    """What devices that are not trusted answer: bytes, or whatever else they hand over."""
    rng, counts = Random(f"replies {seed}"), Counts()
    card = DrafterCard("tiny", "model", "tokens", 64, (2, 3), 256)
    sound: list[Reply] = [
        None,
        Answer(b"block" * 9, 0.25),
        card,
        DrafterHoldings(("a", "b"), 900, 7),
        DrafterHoldings(()),
    ]
    while counts.tried < number:
        one, other = plain(rng.choice(sound)), plain(rng.choice(sound))
        bad: object = mutated_bytes(rng, one, other) if rng.random() < 0.95 else mutated_fields(rng, card, types=True)
        if _understood(counts, partial(read_reply, bad)):
            reply = read_reply(bad)
            assert reply is None or isinstance(reply, Answer | DrafterCard | DrafterHoldings)
    return counts


def calls(seed: int, number: int) -> Counts:
    """What a coordinator tells its verifier, over a real engine, with a generation beside that is to have its tokens.

    Values are odd, of the types they have: both are processes of the service, and what they send is dataclasses.
    """
    rng, counts = Random(f"calls {seed}"), Counts()
    engine = torch_verifier(tiny_llama())
    expected = tiny_alone(_PROMPT, _BESIDE, _BESIDE_TOKENS + _LONGEST_DRAFT)  # the last one may be right by chance
    told = 0
    while counts.tried < number:
        stepped, beside, begun = SteppedEngine(engine), Client("beside", _PROMPT, _BESIDE), False
        session = 0
        while len(beside.output) < _BESIDE_TOKENS and counts.tried < number:
            block = beside.block([rng.randrange(VOCAB) for _ in range(rng.randint(0, _LONGEST_DRAFT))])
            openings = () if begun else (beside.opening(),)
            bad = _mutated_call(rng, counts)
            call = VerifyCall(
                closings=bad.closings,
                openings=(*bad.openings, *openings),
                blocks=(*bad.blocks, block) if rng.random() < 0.5 else (block, *bad.blocks),
                resolutions=bad.resolutions,
                grants=bad.grants,
                dues=bad.dues,
                session=session,
                number=told,
            )
            told += 1
            begun = True
            outcomes = list(stepped.step([call]).outcomes)
            while not stepped.idle:
                outcomes += stepped.step([]).outcomes
            for outcome in outcomes:
                if outcome.generation != "beside" or isinstance(outcome, Unfinished):
                    continue
                if isinstance(outcome, Verified):
                    beside.take(block, outcome)
                    break
                assert isinstance(outcome, Unknown), f"a sound block beside others came to {outcome}"
                begun = False
            assert beside.output == expected[: len(beside.output)]
        stepped.step([VerifyCall(session=session + 1)])
        assert engine.usage().generations == 0, "the next session begins with nothing"
    return counts


def _mutated_call(rng: Random, counts: Counts) -> VerifyCall:
    """Some messages about generations of their own: none names the one beside, which only its owner may speak of."""
    openings, blocks, resolutions = list[OpenGeneration](), list[Block](), list[Resolution]()
    for i in range(rng.randint(1, 3)):
        client = Client(f"bad{i}", [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))], _BESIDE)
        sound = replace(
            client.block([1, 2, 3][: rng.randint(0, 3)]), autonomous_run=rng.choice([None, AutonomousRun(2)])
        )
        opening = client.opening()
        which = rng.randrange(3)
        counts.tried += 1
        openings.append(
            _named(mutated_fields(rng, opening, types=False) if which == 0 else opening, opening.generation)
        )
        blocks.append(_named(mutated_fields(rng, sound, types=False) if which == 1 else sound, sound.generation))
        if which == 2:
            resolutions.append(_named(mutated_fields(rng, Resolution(client.name, 0, None), types=False), client.name))
    closings = tuple(Closing(f"bad{i}", keep_cache=True) for i in range(3))
    return VerifyCall(
        closings=closings,
        openings=tuple(openings),
        blocks=tuple(blocks),
        resolutions=tuple(resolutions),
        grants=(("bad0", rng.choice([-1, 0, 2**40])), ("nobody", 3)),
        dues=(("bad1", rng.choice([-1.0, 0.0, float("inf")])),),
    )


_M = TypeVar("_M", OpenGeneration, Block, Resolution)


def _named(message: _M, name: str) -> _M:
    """With the name it had: by it what comes of a message is told."""
    return replace(message, generation=name)

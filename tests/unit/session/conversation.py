"""One generation's rounds between both sessions, with the verdicts a verifier might give."""

from dataclasses import replace
from random import Random

from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, NeedsPrefix, NeedsRow
from outrider.contracts.exchanged import Candidates, TargetRow, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.price import PRICE_LEVELS, DraftPrice
from outrider.protocols.registry import PROTOCOLS
from outrider.session.session import CoordinatorSession, DrafterSession
from tests.unit.session.random_rounds import random_correction, random_draft, random_plan

GENERATION = "generation"


class Conversation:
    """Both ends, and the committed sequence they are to agree about."""

    def __init__(self, rng: Random, wire: WireFormat) -> None:
        self.rng, self.wire = rng, wire
        self.committed = [rng.randrange(wire.vocab_size) for _ in range(rng.randint(1, 20))]
        self.coordinator = CoordinatorSession(wire, GENERATION)
        self.drafter = DrafterSession(wire, GENERATION, self.committed)
        self.known = len(self.committed)  # tokens the drafter has
        self.last: Draft | None = None  # the last answer, if it is a block
        self.number = rng.randint(0, 1000)
        self.plan = self.new_plan()

    def new_plan(self) -> DraftPlan:
        return random_plan(self.rng, self.rng.choice(tuple(PROTOCOLS)))

    def reopen(self) -> None:
        """The drafter forgot the generation and is given it anew; the coordinator's session stays."""
        self.drafter = DrafterSession(self.wire, GENERATION, self.committed)
        self.known = len(self.committed)

    def verdict(self) -> None:
        """Commit what a verifier makes of the last block: part of a path, and usually a token of its own."""
        if self.last is not None:
            self.committed += path(self.rng, self.last)
        appended = self.rng.choice([0, 1, 1, 1, 1, 2, 20])
        self.committed += [self.rng.randrange(self.wire.vocab_size) for _ in range(appended)]
        self.last = None

    def request(self) -> DraftRequest:
        """The next round's: what was committed since, sometimes with a new plan or a correction to draw."""
        self.number += 1
        if self.rng.random() < 0.3:
            self.plan = self.new_plan()
        corrects = self.rng.random() < 0.3
        return DraftRequest(
            GENERATION,
            self.number,
            self.known,
            tuple(self.committed[self.known :]),
            extend_prefix_hash(EMPTY_PREFIX_HASH, self.committed),
            self.plan,
            random_correction(self.rng, self.wire) if corrects else None,
            self.price(),
        )

    def price(self) -> DraftPrice | None:
        """Of some orders, as a message can tell it."""
        if self.rng.random() < 0.5:
            return None
        return DraftPrice.at_levels(self.rng.randrange(PRICE_LEVELS), self.rng.randrange(PRICE_LEVELS))

    def order(self, request: DraftRequest) -> tuple[bytes, DraftRequest]:
        """Told, and understood."""
        data = self.coordinator.encode_order(request)
        heard = self.drafter.decode_order(data)
        judged = PROTOCOLS[request.plan.protocol].judged
        assert heard == replace(request, round=request.round & 0xFF, want_hidden=judged)
        self.known = len(self.committed)
        return data, heard

    def answer(self, request: DraftRequest, heard: DraftRequest) -> tuple[bytes, DraftAnswer]:
        """A block, or a refusal; told, and understood."""
        chance = self.rng.random()
        answer: DraftAnswer = random_draft(self.rng, heard, self.wire)
        if chance < 0.1:
            answer = NeedsPrefix(heard.generation, heard.round)
        elif isinstance(heard.correction, Candidates) and chance < 0.5:
            answer = NeedsRow(heard.generation, heard.round)
        data = self.drafter.encode_answer(answer)
        told = self.coordinator.decode_answer(data, request)
        assert told == replace(answer, round=request.round)
        self.last = told if isinstance(told, Draft) else None
        return data, told

    def row_again(self, request: DraftRequest) -> DraftRequest:
        """The same round, with a row in place of the candidates."""
        correction = random_correction(self.rng, self.wire)
        while not isinstance(correction, TargetRow):
            correction = random_correction(self.rng, self.wire)
        return replace(request, correction=correction)

    def round(self) -> tuple[bytes, bytes]:
        """One whole round without losses; the last order and its answer."""
        self.verdict()
        request = self.request()
        order, heard = self.order(request)
        answer, told = self.answer(request, heard)
        if isinstance(told, NeedsRow):
            request = self.row_again(request)
            order, heard = self.order(request)
            answer, told = self.answer(request, heard)
        if isinstance(told, NeedsPrefix):
            self.reopen()
        return order, answer


def path(rng: Random, draft: Draft) -> list[int]:
    """Tokens of a random path from the block's beginning; the correction, if there is one, is committed."""
    tokens = [] if draft.correction is None else [draft.correction]
    parents = draft.parents if draft.parents is not None else tuple(range(-1, len(draft.token_ids) - 1))
    node = -1
    while rng.random() < 0.8:
        children = [child for child, parent in enumerate(parents) if parent == node]
        if not children:
            break
        node = rng.choice(children)
        tokens.append(draft.token_ids[node])
    return tokens

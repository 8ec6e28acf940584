"""Encode and decode the messages of a generation at both ends, with the drafter's last block and plan as shared state.

An order is relative to the last block only if the coordinator has decoded that block as the answer to its last order:
then the drafter has it too. Otherwise (first order, lost answer, drafter without the prefix) it has position and
tokens. Agreement on committed tokens is always verified: the checksum of every order covers a hash of the whole
committed sequence, and that of its answer the same hash.

A damaged message, or one that assumes other committed tokens or another last block, is a ``ChecksumError``. One of an
unexpected kind or with invalid content is another ``MessageError``. After either the session is as it was before, and
continues with the next valid message.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, NeedsPrefix, NeedsRow
from outrider.contracts.errors import ChecksumError, MessageError
from outrider.contracts.exchanged import Candidates, FloatRow, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Resolution, Undecided
from outrider.protocols.protocol import SecondStep
from outrider.protocols.registry import PROTOCOLS
from outrider.session.orders import AbsoluteVerdict, Order, RelativeVerdict, read_order, write_order
from outrider.session.verdicts import SentBlock
from outrider.versions import VERSIONS
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import MessageKind, check, round_low, seal, unseal


def payload_bits(data: bytes) -> int:
    """Return the bits of a message on the link, without transport overhead."""
    return len(data) * 8


@dataclass(frozen=True, slots=True)
class _SentOrder:
    request: DraftRequest
    data: bytes


class CoordinatorSession:
    """The coordinator's end of one generation with one drafter."""

    def __init__(self, wire: WireFormat, generation: GenerationId) -> None:
        self.wire = wire
        self._generation = generation
        self._sent: _SentOrder | None = None
        self._block: SentBlock | None = None  # the answer to the last order, once decoded

    def encode_order(self, request: DraftRequest) -> bytes:
        """Return the message that requests a block; for an equal request again the same bytes."""
        if self._sent is not None and self._sent.request == request:
            return self._sent.data
        if request.generation != self._generation or request.want_hidden:
            raise MessageError(
                f"needs a request of generation {self._generation} without hidden states, which no message carries; "
                f"found {request.generation} with want_hidden={request.want_hidden}"
            )
        block = self._relative_to(request)
        order = self._order(request, block)
        writer = BitWriter()
        write_order(writer, order, self.wire, block.length if block else 0)
        kind = MessageKind.ORDER if block else MessageKind.ABSOLUTE_ORDER
        data = seal(kind, request.round, writer.to_bytes(), request.prefix_hash, self.wire.version)
        self._sent, self._block = _SentOrder(request, data), None
        return data

    def decode_answer(self, data: bytes, request: DraftRequest) -> DraftAnswer:
        """Decode the answer to the last order; ``request`` is that order's."""
        if self._sent is None or (self._sent.request is not request and self._sent.request != request):
            raise MessageError(f"needs the request of the last order to decode its answer, found round {request.round}")
        message = unseal(data)
        if message.kind not in _ANSWERS or message.round_low != round_low(request.round):
            raise MessageError(
                f"needs an answer to round {round_low(request.round)} (mod 256), found {message.kind.name} of "
                f"{message.round_low}"
            )
        check(message, request.prefix_hash)
        reader = BitReader(message.body)
        if message.kind is MessageKind.BLOCK:
            draft = _read_block(reader, request, self.wire)
            self._block = SentBlock.of(draft)
            return draft
        reader.finish()
        if message.kind is MessageKind.NEEDS_ROW:
            if not isinstance(request.correction, Candidates):
                raise MessageError("found an answer that asks for the row, but no candidates were sent")
            self._block = None
            return NeedsRow(request.generation, request.round)
        self._sent, self._block = None, None  # the drafter lost its state: the next order is absolute
        return NeedsPrefix(request.generation, request.round)

    def encode_question(self, asked: Undecided) -> bytes:
        """Return the message that asks for more of the last block, which has been decoded."""
        request = self._asked_about(asked)
        writer = BitWriter()
        _second_step(request).encode_question(writer, asked.mismatches, request.plan)
        return seal(MessageKind.QUESTION, asked.round, writer.to_bytes(), request.prefix_hash, self.wire.version)

    def decode_details(self, data: bytes, asked: Undecided) -> Resolution:
        """Decode the drafter's answer to a question."""
        request, message = self._asked_about(asked), unseal(data)
        if message.kind is not MessageKind.DETAILS or message.round_low != round_low(asked.round):
            raise MessageError(
                f"needs details of round {asked.round}, found {message.kind.name} of {message.round_low}"
            )
        check(message, request.prefix_hash)
        reader = BitReader(message.body)
        hidden = _second_step(request).decode_states(reader, len(asked.mismatches), self.wire)
        reader.finish()
        return Resolution(asked.generation, asked.round, hidden)

    def _asked_about(self, asked: Undecided) -> DraftRequest:
        request = None if self._sent is None or self._block is None else self._sent.request
        if request is None or (request.generation, request.round) != (asked.generation, asked.round):
            raise MessageError(f"needs the last block's round, found a question about round {asked.round}")
        return request

    def _relative_to(self, request: DraftRequest) -> SentBlock | None:
        """Return the last block if the request's feedback begins where that block did, else None."""
        if self._sent is None or self._block is None:
            return None
        last = self._sent.request
        starts_there = request.feedback_position == last.feedback_position + len(last.feedback)
        return self._block if starts_there else None

    def _order(self, request: DraftRequest, block: SentBlock | None) -> Order:
        plan: DraftPlan | None = request.plan
        verdict: RelativeVerdict | AbsoluteVerdict = AbsoluteVerdict(request.feedback_position, request.feedback)
        if block is not None:
            last = block.accepted(request.feedback)
            verdict = RelativeVerdict(last, request.feedback[len(block.tokens_to(last)) :])
            if self._sent is not None and self._sent.request.plan == plan:
                plan = None
        return Order(verdict, plan, request.correction, request.price)


class DrafterSession:
    """The drafter's end. It keeps the committed sequence, against which checksums are verified."""

    def __init__(
        self, wire: WireFormat, generation: GenerationId, token_ids: Sequence[int], most_tokens: int = 2**31
    ) -> None:
        """Start with the committed tokens ``token_ids`` that the generation was opened with.

        An order of more than ``most_tokens``, as no drafter's context has, is a ``MessageError`` before it is hashed.
        """
        self._wire, self._most_tokens = wire, most_tokens
        self._generation = generation
        self._token_ids = array("q", token_ids)
        self._hashes = array("Q", [EMPTY_PREFIX_HASH])  # of each prefix, so that an order hashes only its own tokens
        self._hashes.extend(_hashes(EMPTY_PREFIX_HASH, token_ids))
        self._order_data: bytes | None = None
        self._request: DraftRequest | None = None
        self._version = VERSIONS.messages.newest  # of the last order, in which it is answered
        self._answer_data: bytes | None = None
        self._block: SentBlock | None = None  # of the last answer
        self._hidden: FloatRow | None = None  # hidden states of that block, if a question may follow

    def answer_at_once(self, data: bytes) -> bytes | None:
        """Answer what needs no engine: a repeated order, or a question about the last block; None otherwise."""
        if data == self._order_data:
            return self._answer_data
        message = unseal(data)
        if message.kind is not MessageKind.QUESTION:
            return None
        request, hidden = self._request, self._hidden
        if request is None or hidden is None or message.round_low != request.round:
            raise ChecksumError("the question is about a block that was never sent; open the generation again")
        check(message, request.prefix_hash)
        reader, writer = BitReader(message.body), BitWriter()
        second_step = _second_step(request)
        mismatches = second_step.decode_question(reader, request.plan)
        reader.finish()
        if not all(0 <= node < len(hidden) for node in mismatches):
            raise MessageError(f"needs tokens of a block of {len(hidden)}, found {mismatches}")
        second_step.encode_states(writer, hidden[list(mismatches)], self._wire)
        return seal(MessageKind.DETAILS, request.round, writer.to_bytes(), request.prefix_hash, message.version)

    def decode_order(self, data: bytes) -> DraftRequest:
        """Decode a request, whose round is the low 8 bits of the coordinator's. Equal bytes give the same request."""
        if self._request is not None and data == self._order_data:
            return self._request
        message = unseal(data)
        if message.kind not in _ORDERS:
            raise MessageError(f"needs an order, found {message.kind.name}")
        relative = message.kind is MessageKind.ORDER
        if relative and self._block is None:
            raise ChecksumError("the order refers to a block that was never sent; open the generation again")
        block_length = self._block.length if relative and self._block else None
        order = read_order(BitReader(message.body), self._wire, block_length)
        position, feedback = self._committed(order.verdict)
        if len(feedback) > self._most_tokens:
            raise MessageError(f"needs an order of at most {self._most_tokens} tokens, found {len(feedback)}")
        hashes = _hashes(self._hashes[position], feedback)
        prefix_hash = hashes[-1] if hashes else self._hashes[position]
        check(message, prefix_hash)
        plan = order.plan or (self._request.plan if relative and self._request else None)
        if plan is None:
            raise MessageError("an absolute order needs its own plan, found none")
        # Only now, as the checksum matched: an invalid order must leave the session as it was.
        del self._token_ids[position:], self._hashes[position + 1 :]
        self._token_ids.extend(feedback)
        self._hashes.extend(hashes)
        self._order_data, self._answer_data, self._block, self._hidden = data, None, None, None
        self._version = message.version
        self._request = DraftRequest(
            generation=self._generation,
            round=message.round_low,
            feedback_position=position,
            feedback=feedback,
            prefix_hash=prefix_hash,
            plan=plan,
            correction=order.correction,
            price=order.price,
            want_hidden=PROTOCOLS[plan.protocol].judged,
        )
        return self._request

    def encode_answer(self, answer: DraftAnswer) -> bytes:
        """Return the message that answers the last order."""
        request = self._request
        if request is None or (answer.generation, answer.round) != (self._generation, request.round):
            raise MessageError(f"needs an answer to the last order, found one of {answer.generation}/{answer.round}")
        writer = BitWriter()
        block, hidden = None, None
        if isinstance(answer, Draft):
            kind = MessageKind.BLOCK
            _write_block(writer, answer, request, self._wire)
            block, hidden = SentBlock.of(answer), answer.hidden
        else:
            kind = MessageKind.NEEDS_ROW if isinstance(answer, NeedsRow) else MessageKind.NEEDS_PREFIX
        data = seal(kind, request.round, writer.to_bytes(), request.prefix_hash, self._version)
        self._answer_data, self._block, self._hidden = data, block, hidden
        return data

    def _committed(self, verdict: RelativeVerdict | AbsoluteVerdict) -> tuple[int, tuple[int, ...]]:
        held = len(self._token_ids)
        if isinstance(verdict, RelativeVerdict):
            assert self._block is not None
            return held, (*self._block.tokens_to(verdict.last_accepted), *verdict.appended)
        if verdict.position > held:
            raise ChecksumError(
                f"the order starts at position {verdict.position}, this side has {held} tokens; open the generation "
                "again"
            )
        return verdict.position, verdict.token_ids


_ORDERS = frozenset({MessageKind.ORDER, MessageKind.ABSOLUTE_ORDER})
_ANSWERS = frozenset({MessageKind.BLOCK, MessageKind.NEEDS_PREFIX, MessageKind.NEEDS_ROW})


def _second_step(request: DraftRequest) -> SecondStep:
    second_step = PROTOCOLS[request.plan.protocol].second_step
    if second_step is None:
        raise MessageError(f"needs a protocol that is asked again, found {request.plan.protocol}")
    return second_step


def _write_block(writer: BitWriter, draft: Draft, request: DraftRequest, wire: WireFormat) -> None:
    position = request.feedback_position + len(request.feedback)
    if draft.position != position or (draft.correction is None) != (request.correction is None):
        raise MessageError(
            f"needs a block at position {position} with a correction iff one was asked for, found position "
            f"{draft.position} and correction {draft.correction}"
        )
    if draft.correction is not None:
        writer.ids([draft.correction], wire.vocab_size)
    PROTOCOLS[request.plan.protocol].encode(writer, draft, request.plan, wire)


def _read_block(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    correction = int(reader.ids(1, wire.vocab_size)[0]) if request.correction is not None else None
    draft = PROTOCOLS[request.plan.protocol].decode(reader, request, wire)
    reader.finish()
    return replace(draft, correction=correction)


def _hashes(prefix_hash: int, token_ids: Sequence[int]) -> list[int]:
    """Return the hashes of the prefix continued by one token, by two, and so on."""
    hashes: list[int] = []
    for token_id in token_ids:
        prefix_hash = extend_prefix_hash(prefix_hash, (token_id,))
        hashes.append(prefix_hash)
    return hashes

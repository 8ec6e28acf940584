"""Encode orders to a drafter: verdict on its last block, source of a deferred correction, next plan."""

from dataclasses import dataclass

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ChecksumError, MessageError
from outrider.contracts.exchanged import ArrayData, CorrectionSource, WireFormat
from outrider.contracts.price import LEVEL_BITS, DraftPrice
from outrider.protocols.corrections import read_source, write_source
from outrider.protocols.registry import PROTOCOLS, protocol_coded
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import MAX_NODES

_PROTOCOL_BITS = 3
_FURTHER_PROTOCOLS = 2**_PROTOCOL_BITS - 1  # codes from here on are this number, then a count of the rest


@dataclass(frozen=True, slots=True)
class RelativeVerdict:
    """A verdict relative to the drafter's last block."""

    last_accepted: int  # number of the last accepted token, see SentBlock
    appended: tuple[int, ...]  # committed tokens after it, usually the target's own


@dataclass(frozen=True, slots=True)
class AbsoluteVerdict:
    """A verdict without reference to a block: the committed tokens from a position on."""

    position: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Order(ArrayData):
    """One order. ``plan`` is None if it is unchanged since the last order."""

    verdict: RelativeVerdict | AbsoluteVerdict
    plan: DraftPlan | None
    correction: CorrectionSource | None = None
    price: DraftPrice | None = None


def write_order(writer: BitWriter, order: Order, wire: WireFormat, block_length: int) -> None:
    """Write the body of an order.

    ``block_length`` is of the drafter's last block; unused by an absolute verdict.
    """
    verdict = order.verdict
    if isinstance(verdict, RelativeVerdict):
        writer.uint(verdict.last_accepted, block_length.bit_length())
        writer.flag(value=len(verdict.appended) == 1)
        if len(verdict.appended) != 1:
            writer.count(len(verdict.appended))
        writer.ids(verdict.appended, wire.vocab_size)
    else:
        writer.count(verdict.position)
        writer.count(len(verdict.token_ids))
        writer.ids(verdict.token_ids, wire.vocab_size)
    writer.flag(value=order.plan is None)
    if order.plan is not None:
        _write_plan(writer, order.plan)
    writer.flag(value=order.correction is not None)
    if order.correction is not None:
        write_source(writer, order.correction, wire)
    writer.flag(value=order.price is not None)
    if order.price is not None:
        for level in order.price.levels:
            writer.uint(level, LEVEL_BITS)


def read_order(reader: BitReader, wire: WireFormat, block_length: int | None) -> Order:
    """Read an order to the end of its body; ``block_length`` is the last block's, for a relative verdict.

    Raises:
        ChecksumError: it accepts more than the last block had.
        MessageError: the bits are no order.
    """
    verdict: RelativeVerdict | AbsoluteVerdict
    if block_length is not None:
        last_accepted = reader.uint(block_length.bit_length())
        if last_accepted > block_length:
            raise ChecksumError(
                f"the verdict accepts token {last_accepted} of a last block of {block_length}: "
                "the two sides disagree about it"
            )
        appended = 1 if reader.flag() else reader.count()
        verdict = RelativeVerdict(last_accepted, tuple(reader.ids(appended, wire.vocab_size).tolist()))
    else:
        position, tokens = reader.count(), reader.count()
        verdict = AbsoluteVerdict(position, tuple(reader.ids(tokens, wire.vocab_size).tolist()))
    plan = None if reader.flag() else _read_plan(reader)
    correction = read_source(reader, wire) if reader.flag() else None
    price = None
    if reader.flag():
        price = DraftPrice.at_levels(reader.uint(LEVEL_BITS), reader.uint(LEVEL_BITS))
    reader.finish()
    return Order(verdict, plan, correction, price)


def _write_plan(writer: BitWriter, plan: DraftPlan) -> None:
    _check_plan(plan)
    code = PROTOCOLS[plan.protocol].code
    writer.uint(min(code, _FURTHER_PROTOCOLS), _PROTOCOL_BITS)
    if code >= _FURTHER_PROTOCOLS:
        writer.count(code - _FURTHER_PROTOCOLS)
    writer.count(plan.window)
    writer.flag(value=plan.is_tree)
    if not plan.is_tree:
        return
    writer.flag(value=plan.rows > 0)
    if plan.rows:
        writer.count(plan.rows - 1)
    for children in plan.expansion:
        writer.count(children - 1)


def _read_plan(reader: BitReader) -> DraftPlan:
    code = reader.uint(_PROTOCOL_BITS)
    if code == _FURTHER_PROTOCOLS:
        code += reader.count()
    protocol, window = protocol_coded(code), reader.count()
    if window > MAX_NODES:
        raise MessageError(f"needs a window of 0..{MAX_NODES}, found {window}")
    if protocol is None:
        raise MessageError(f"needs the code of a protocol that is known here, found {code}")
    expansion, rows = tuple[int, ...](), 0
    if reader.flag():
        if reader.flag():
            rows = reader.count() + 1
        else:
            reader.need(window)
            expansion = tuple(reader.count() + 1 for _ in range(window))
    plan = DraftPlan(protocol.name, window, expansion, rows)
    _check_plan(plan)
    return plan


def _check_plan(plan: DraftPlan) -> None:
    tree = plan.expansion
    if tree and (not PROTOCOLS[plan.protocol].trees or len(tree) != plan.window or min(tree) < 1):
        raise MessageError(
            f"needs a tree protocol and {plan.window} numbers of children >= 1, found {plan.protocol} with {tree}"
        )
    grows, grown = PROTOCOLS[plan.protocol].grows, plan.rows
    if grown and (not grows or tree or not 1 <= plan.window <= grown):
        raise MessageError(
            f"needs a protocol with dynamic trees, no other shape and a window of 1..{grown}, found "
            f"{plan.protocol} with window {plan.window} and {tree}"
        )
    if not 0 <= plan.window <= MAX_NODES or plan.nodes > MAX_NODES:
        shape = f"{grown} rows" if grown else tree
        raise MessageError(f"needs a plan of 0..{MAX_NODES} tokens, found window {plan.window} with {shape}")

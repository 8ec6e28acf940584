"""What goes down to a drafter: the verdict on its last block, the source of a deferred correction, the next plan."""

from dataclasses import dataclass

from outrider.contracts.drafting import DraftPlan, DraftStop
from outrider.contracts.errors import ChecksumError, MessageError
from outrider.contracts.exchanged import ArrayData, Candidates, CorrectionSource, TargetRow, WireFormat
from outrider.contracts.requests import TREE_PROTOCOLS, ProtocolName
from outrider.protocols.dssd import read_row, write_row
from outrider.protocols.dssd_candidates import read_candidates, write_candidates
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import MAX_NODES

_PROTOCOLS = tuple(ProtocolName)
_PROTOCOL_BITS = (len(_PROTOCOLS) - 1).bit_length()
_STOPS = tuple(DraftStop)
_STOP_BITS = (len(_STOPS) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Accepted:
    """A verdict relative to the drafter's last block."""

    element: int  # see SentBlock
    appended: tuple[int, ...]  # tokens behind it, usually the target's own


@dataclass(frozen=True, slots=True)
class Committed:
    """A verdict by itself: the committed tokens from a position on."""

    position: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Order(ArrayData):
    """One order. ``plan`` is None if it is the last order's."""

    verdict: Accepted | Committed
    plan: DraftPlan | None
    correction: CorrectionSource | None = None
    stop: DraftStop = DraftStop.NEVER


def write_order(writer: BitWriter, order: Order, wire: WireFormat, elements: int) -> None:
    """The body of an order.

    Args:
        writer: of the message.
        order: what to tell.
        wire: of the message.
        elements: of the drafter's last block; unused by an absolute verdict.

    Raises:
        MessageError: it names what does not exist, or what the format cannot carry.
    """
    verdict = order.verdict
    if isinstance(verdict, Accepted):
        writer.uint(verdict.element, elements.bit_length())
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
    writer.uint(_STOPS.index(order.stop), _STOP_BITS)
    writer.flag(value=order.correction is not None)
    if order.correction is not None:
        writer.flag(value=isinstance(order.correction, Candidates))
        if isinstance(order.correction, Candidates):
            write_candidates(writer, order.correction, wire)
        else:
            write_row(writer, order.correction, wire)


def read_order(reader: BitReader, wire: WireFormat, elements: int | None) -> Order:
    """The same order, to the end of its body.

    Args:
        reader: of the body.
        wire: of the message.
        elements: of the last block, for a verdict relative to it; None: the verdict is absolute.

    Raises:
        ChecksumError: it accepts more than the last block had.
        MessageError: the bits are no order.
    """
    verdict: Accepted | Committed
    if elements is not None:
        element = reader.uint(elements.bit_length())
        if element > elements:
            raise ChecksumError(
                f"the verdict accepts element {element} of a last block of {elements}: the two sides disagree about it"
            )
        appended = 1 if reader.flag() else reader.count()
        verdict = Accepted(element, tuple(reader.ids(appended, wire.vocab_size).tolist()))
    else:
        position, tokens = reader.count(), reader.count()
        verdict = Committed(position, tuple(reader.ids(tokens, wire.vocab_size).tolist()))
    plan = None if reader.flag() else _read_plan(reader)
    stop = _STOPS[reader.uint(_STOP_BITS)]
    correction: TargetRow | Candidates | None = None
    if reader.flag():
        correction = read_candidates(reader, wire) if reader.flag() else read_row(reader, wire)
    reader.finish()
    return Order(verdict, plan, correction, stop)


def _write_plan(writer: BitWriter, plan: DraftPlan) -> None:
    _check_plan(plan)
    writer.uint(_PROTOCOLS.index(plan.protocol), _PROTOCOL_BITS)
    writer.count(plan.window)
    writer.flag(value=bool(plan.expansion))
    for children in plan.expansion:
        writer.count(children - 1)


def _read_plan(reader: BitReader) -> DraftPlan:
    protocol, window = reader.uint(_PROTOCOL_BITS), reader.count()
    if window > MAX_NODES:
        raise MessageError(f"needs a window of 0..{MAX_NODES}, found {window}")
    if protocol >= len(_PROTOCOLS):
        raise MessageError(f"needs a protocol in 0..{len(_PROTOCOLS) - 1}, found {protocol}")
    expansion: tuple[int, ...] = ()
    if reader.flag():
        reader.need(window)
        expansion = tuple(reader.count() + 1 for _ in range(window))
    plan = DraftPlan(_PROTOCOLS[protocol], window, expansion)
    _check_plan(plan)
    return plan


def _check_plan(plan: DraftPlan) -> None:
    tree = plan.expansion
    if tree and (plan.protocol not in TREE_PROTOCOLS or len(tree) != plan.window or min(tree) < 1):
        raise MessageError(
            f"needs a tree protocol and {plan.window} numbers of children >= 1, found {plan.protocol} with {tree}"
        )
    if not 0 <= plan.window <= MAX_NODES or plan.nodes > MAX_NODES:
        raise MessageError(f"needs a plan of 0..{MAX_NODES} tokens, found window {plan.window} with {tree}")

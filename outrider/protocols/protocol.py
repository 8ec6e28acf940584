"""What a protocol is: all in which one differs from another, behind one object. The registry holds one of each.

A protocol decides what tokens are drawn from at the device, what of that crosses the link, by which rule a block is
verified, and who draws the correction after a rejection. Nothing outside this room asks which protocol it has: whoever
needs to know something that differs asks the object.

"Quantise, then sample": a row of draft logits is first rounded to what the message can carry, and the tokens are drawn
from the row as decoded, so that both ends of the link compute with the same numbers. These are two calls, ``rows`` and
``draw``: between them whoever decides how far to draft knows the distribution, and nobody knows a token.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

from outrider.contracts.drafting import Child, Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError, UnsupportedBlockError
from outrider.contracts.exchanged import Deferral, DraftDistribution, FloatRow, IntRow, WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.sampling.distributions import Probs, softmax
from outrider.sampling.noise import Purpose, uniforms
from outrider.wire.bits import BitReader, BitWriter

Sent = TypeVar("Sent")


@dataclass(frozen=True, slots=True)
class Layer:
    """How the rows of one depth are drawn from.

    Attributes:
        wire: how they are rounded.
        params: the request's; the logits are adjusted by them already.
        position: absolute position of the tokens drawn.
        children: tokens to draw from each row.
    """

    wire: WireFormat
    params: SamplingParams
    position: int
    children: int

    def numbers(self) -> list[float]:
        """A uniform number for each child.

        Nodes of one depth share theirs: only the children of one of them can be on the path that is accepted.
        """
        numbers: list[float] = uniforms(self.params.seed, self.position, Purpose.DRAFT_TOKEN, self.children).tolist()
        return numbers


@dataclass(frozen=True, eq=False)
class DraftRow:
    """What the next tokens behind one node are drawn from. None is drawn yet.

    Attributes:
        logits: ``[vocab]``, or ``[n]`` of a truncated row; float32, as decoded where a sampled request sends them.
        support: ``[n]`` int64, ids of a truncated row.
        numerators: ``[vocab]`` int64, the row in fixed point (``fixed_point``).
    """

    logits: FloatRow
    support: IntRow | None = None
    numerators: IntRow | None = None

    @cached_property
    def probs(self) -> Probs:
        """``[vocab]`` or ``[n]`` float64, exactly what a sampled request's tokens are drawn from.

        Of a greedy request, which takes the likeliest: what its model says at temperature 1.
        """
        if self.numerators is None:
            return softmax(self.logits)
        probs: Probs = self.numerators / self.numerators.sum()  # by a power of two: exact
        return probs


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRow:
    """Tokens drawn from one row; of the rest, what the protocol sends or keeps.

    Attributes:
        token_ids: the children, in the order of their noise; fewer than wanted if the support ran out.
        support: ``[n]`` int64, ids of a truncated row.
        logits: ``[n]`` of them, or ``[vocab]`` of a whole row, float32 as decoded.
        numerators: ``[vocab]`` int64, the row in fixed point (``fixed_point``). The device keeps it: if the token is
            rejected, it is what the device draws the correction from.
    """

    token_ids: tuple[int, ...]
    support: IntRow | None = None
    logits: FloatRow | None = None
    numerators: IntRow | None = None


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What deferral and costs of one generation's next round depend on.

    Attributes:
        csi: state of the link to the drafter; None if not measured yet.
        rejection_mass: expected total variation between target and draft, at the first draft position: one less the
            acceptance of a token.
    """

    params: SamplingParams
    wire: WireFormat
    csi: Csi | None
    rejection_mass: float


class SecondStep(ABC):
    """What crosses the link where the verifier asks again before it decides (``Undecided``, ``Resolution``).

    The device keeps the hidden states its last chain was drawn from until it has the next order. What cannot be written
    or read is a ``MessageError``.
    """

    @abstractmethod
    def encode_question(self, writer: BitWriter, mismatches: Sequence[int], plan: DraftPlan) -> None:
        """Write which tokens of the block are asked about: indices, ascending."""

    @abstractmethod
    def decode_question(self, reader: BitReader, plan: DraftPlan) -> tuple[int, ...]: ...

    @abstractmethod
    def encode_states(self, writer: BitWriter, hidden: FloatRow, wire: WireFormat) -> None:
        """Write the hidden state each of them was chosen from, ``[M, d]`` float32."""

    @abstractmethod
    def decode_states(self, reader: BitReader, count: int, wire: WireFormat) -> FloatRow:
        """Read ``count`` of them, as the verifier is to see them."""


class DraftProtocol(ABC):
    """One protocol. Stateless; methods are pure.

    Attributes:
        name: in configuration, requests, metrics and ``usage``.
        code: on the wire; never given to another protocol.
        chains: its messages carry chains; one that does not drafts a chain as a tree of single children.
        trees: its messages carry token trees.
        grows: which of a tree's nodes are sent may be decided once they are known, as its output is the target's own
            choice whatever is drafted.
        reproducible: the output is, token for token, what the target alone makes of a request's seed.
        draws_as_target: an only child is drawn as the target itself would draw it, so that an engine may draw it with
            the target's sampler, and nothing of the row is sent.
        judged: mismatches are judged by the drafter's hidden states, for requests that allow it; it drafts chains.
        second_step: of a rule that may ask again; such a protocol drafts chains.
    """

    name: ClassVar[ProtocolName]
    code: ClassVar[int]
    chains: ClassVar[bool] = True
    trees: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    reproducible: ClassVar[bool] = False
    draws_as_target: ClassVar[bool] = False
    judged: ClassVar[bool] = False
    second_step: ClassVar[SecondStep | None] = None

    @abstractmethod
    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write a block: tokens, shape, distributions or hidden states. The correction is no part of it.

        A ``MessageError`` says that it is not one of this plan, or holds what the format cannot carry.
        """

    @abstractmethod
    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        """Read the block that answers ``request``; bits that are none are a ``MessageError``."""

    @abstractmethod
    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """The paper's formula for a full block going up."""

    @abstractmethod
    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Bits of a full block's body that the paper's formula leaves out. The sum of both is exact."""

    def rows(self, logits: FloatRow, layer: Layer) -> list[DraftRow]:
        """What the next layer is drawn from: adjusted logits, ``[n, vocab]`` float32, -inf where removed."""
        if layer.params.greedy:
            return [DraftRow(row) for row in logits]
        return [self.rounded(row, layer.wire, layer.params) for row in logits]

    def draw(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """Draw the next layer from what ``rows`` has made of its logits."""
        if layer.params.greedy:
            return [self.draw_greedy(row.logits, layer) for row in rows]
        return self.draw_sampled(rows, layer)

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:  # noqa: ARG002 (what others need)
        """A sampled request's row, ``[vocab]``, as its message can carry it; where none is sent, as it is."""
        return DraftRow(row)

    @abstractmethod
    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:
        """From one row, ``[vocab]``, for a greedy request. What is sent is one-hot, which any rounding keeps."""

    @abstractmethod
    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """From rounded rows, for the others."""

    def children(self, rows: Sequence[DraftRow], layer: Layer) -> list[list[Child]]:  # noqa: ARG002 (what others need)
        """The children that nodes of a growing tree may have, from the rows behind them.

        Of a row the ``layer.children`` likeliest to be the target's choice, best first, each with that probability. An
        ``UnsupportedBlockError`` of a protocol that grows none.
        """
        raise UnsupportedBlockError(f"{self.name} grows no trees: what it draws is to be sent")

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (what others need)
        """What is sent of the rows of a block, in order; nothing unless a protocol says so."""
        return None

    def lossless(self, wire: WireFormat) -> bool:  # noqa: ARG002 (what others need)
        """Whether the output has exactly the target's distribution. Rounding a row before drawing from it is exact."""
        return True

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:  # noqa: ARG002 (what others need)
        """By which a request's blocks are verified."""
        return AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.RATIO

    def needs_trust(self, params: SamplingParams) -> bool:
        """Whether what a device says, or draws, could change what a request is answered."""
        return self.judged or not (params.greedy or self.reproducible)

    def deferral(self, terms: RoundTerms) -> Deferral | None:  # noqa: ARG002 (what others need)
        """What the verifier is to leave to the device after a rejection; None if it draws corrections itself.

        A protocol that defers keeps ``DrawnRow.numerators``: any device with the same draft model can compute that row
        again, and draw what another one owes.
        """
        return None

    def rejection_s(self, terms: RoundTerms) -> float:  # noqa: ARG002 (what others need)
        """Seconds on the link that a rejection is expected to cost, beyond the exchange every round needs."""
        return 0.0

    def again_s(self, terms: RoundTerms, plan: DraftPlan, mismatches: float) -> float:  # noqa: ARG002 (what others need)
        """Seconds on the link of a second step, given that the target differs from so many tokens, at least one."""
        return 0.0

    def fault(self, draft: Draft, params: SamplingParams) -> str | None:  # noqa: ARG002 (what others need)
        """What is wrong with a block that could be read, or None. A device is not trusted to draw sensibly."""
        return None


def block(
    request: DraftRequest,
    token_ids: tuple[int, ...],
    parents: tuple[int, ...] | None = None,
    distribution: DraftDistribution = None,
) -> Draft:
    """A decoded block, with what both ends know of it anyway."""
    position = request.feedback_position + len(request.feedback)
    return Draft(request.generation, request.round, position, token_ids, parents=parents, distribution=distribution)


def distribution_as(kind: type[Sent], draft: Draft) -> Sent:
    """The distribution of a block, of the type its protocol sends; another one is a ``MessageError``."""
    if not isinstance(draft.distribution, kind):
        raise MessageError(f"needs a {kind.__name__} to send, found a {type(draft.distribution).__name__}")
    return draft.distribution

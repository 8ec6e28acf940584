"""Define the interface of a protocol: everything in which one differs from another. The registry holds one of each.

A protocol decides what tokens are drawn from at the device, what of that crosses the link, by which rule a block is
verified, and who draws the correction after a rejection. Code outside this package never asks which protocol it has; it
asks the object for what differs.

"Quantise, then sample": a row of draft logits is first rounded to what the message can carry, and tokens are drawn from
the row as decoded, so both ends compute with the same numbers. These are two calls, ``rows`` and ``draw``. A stop rule
decides between them: it sees the distribution but no token.
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
    """Parameters for drawing from all rows of one depth."""

    wire: WireFormat  # format to which rows are rounded
    params: SamplingParams  # of the request; the logits are already adjusted by them
    position: int  # absolute position of the tokens drawn
    children: int  # tokens to draw from each row

    def numbers(self) -> list[float]:
        """Return a uniform number for each child.

        Nodes of one depth share these numbers: only the children of one of the nodes can be on the accepted path.
        """
        numbers: list[float] = uniforms(self.params.seed, self.position, Purpose.DRAFT_TOKEN, self.children).tolist()
        return numbers


@dataclass(frozen=True, eq=False)
class DraftRow:
    """Distribution of the next tokens behind one node, before any is drawn."""

    logits: FloatRow  # ``[vocab]``, or ``[n]`` of a truncated row; float32, as decoded if a sampled request sends them
    support: IntRow | None = None  # ``[n]`` int64, ids of a truncated row
    numerators: IntRow | None = None  # ``[vocab]`` int64, the row in fixed point (``fixed_point``)

    @cached_property
    def probs(self) -> Probs:
        """``[vocab]`` or ``[n]`` float64, exactly what a sampled request's tokens are drawn from.

        For a greedy request, which takes the most probable token: the model's distribution at temperature 1.
        """
        if self.numerators is None:
            return softmax(self.logits)
        probs: Probs = self.numerators / self.numerators.sum()  # exact: the sum is a power of two
        return probs


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRow:
    """Tokens drawn from one row, and what the protocol sends or keeps of the row."""

    token_ids: tuple[int, ...]  # the children, in the order of their noise; fewer than wanted if the support ran out
    support: IntRow | None = None  # ``[n]`` int64, ids of a truncated row
    logits: FloatRow | None = None  # ``[n]`` of the support, or ``[vocab]`` of a whole row; float32 as decoded
    # ``[vocab]`` int64, the row in fixed point (``fixed_point``). The device keeps it and draws the correction from it
    # if the token is rejected.
    numerators: IntRow | None = None


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What deferral and costs of a generation's next round depend on."""

    params: SamplingParams
    wire: WireFormat
    csi: Csi | None  # state of the link to the drafter; None if not measured yet
    # expected total variation between target and draft at the first draft position, 1 - acceptance
    rejection_mass: float


class SecondStep(ABC):
    """Messages of a round in which the verifier asks again before it decides (``Undecided``, ``Resolution``).

    The device keeps the hidden states of its last chain until the next order. Anything that cannot be written or read
    is a ``MessageError``.
    """

    @abstractmethod
    def encode_question(self, writer: BitWriter, mismatches: Sequence[int], plan: DraftPlan) -> None:
        """Write the indices, ascending, of the tokens that the question is about."""

    @abstractmethod
    def decode_question(self, reader: BitReader, plan: DraftPlan) -> tuple[int, ...]: ...

    @abstractmethod
    def encode_states(self, writer: BitWriter, hidden: FloatRow, wire: WireFormat) -> None:
        """Write the hidden states that these tokens were chosen from, ``[M, d]`` float32."""

    @abstractmethod
    def decode_states(self, reader: BitReader, count: int, wire: WireFormat) -> FloatRow:
        """Read ``count`` states, rounded as the verifier is to judge them."""


class DraftProtocol(ABC):
    """One protocol. Stateless; methods are pure.

    Attributes:
        name: in configuration, requests, metrics and ``usage``.
        code: on the wire; never reused for another protocol.
        chains: its messages carry chains; without, a chain is drafted as a tree of single children.
        trees: its messages carry token trees.
        grows: nodes may be chosen after they are drawn, as the output is the target's own choice whatever is drafted.
        reproducible: the output is token for token what the target alone makes of a request's seed.
        draws_as_target: an only child is drawn as the target itself would draw it. So an engine may draw it with the
            target's sampler, and nothing of the row is sent.
        judged: mismatches are judged by the drafter's hidden states, for requests that allow it; it drafts chains.
        second_step: messages of a rule that may ask again; such a protocol drafts chains.
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
        """Write a block without its correction: tokens, shape, distributions or hidden states.

        A ``MessageError`` if it is not a block of this plan, or holds what the format cannot carry.
        """

    @abstractmethod
    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        """Read the block that answers ``request``; invalid bits are a ``MessageError``."""

    @abstractmethod
    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return the paper's formula for a full block going up."""

    @abstractmethod
    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return the bits of a full block's body that the paper's formula omits. The sum of both is exact."""

    def rows(self, logits: FloatRow, layer: Layer) -> list[DraftRow]:
        """Return the rows of the next layer from adjusted logits, ``[n, vocab]`` float32, -inf where removed."""
        if layer.params.greedy:
            return [DraftRow(row) for row in logits]
        return [self.rounded(row, layer.wire, layer.params) for row in logits]

    def draw(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """Draw the next layer from the result of ``rows``."""
        if layer.params.greedy:
            return [self.draw_greedy(row.logits, layer) for row in rows]
        return self.draw_sampled(rows, layer)

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:  # noqa: ARG002 (what others need)
        """Round a sampled request's row, ``[vocab]``, to what the message carries; unchanged where no row is sent."""
        return DraftRow(row)

    @abstractmethod
    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:
        """Draw from one row, ``[vocab]``, for a greedy request. What is sent is one-hot, which any rounding keeps."""

    @abstractmethod
    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """Draw from rounded rows, for a sampled request."""

    def children(self, rows: Sequence[DraftRow], layer: Layer) -> list[list[Child]]:  # noqa: ARG002 (what others need)
        """Return the possible children of nodes in a growing tree, from the rows behind the nodes.

        For each row: the ``layer.children`` tokens most likely to be the target's choice, best first, with that
        probability. Raises ``UnsupportedBlockError`` if the protocol grows no trees.
        """
        raise UnsupportedBlockError(f"{self.name} has no dynamic trees: every drawn token has to be sent")

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (what others need)
        """Return what is sent of a block's rows, in order; None unless a protocol overrides it."""
        return None

    def lossless(self, wire: WireFormat) -> bool:  # noqa: ARG002 (what others need)
        """Return whether the output has exactly the target's distribution. Rounding a row before drawing keeps that."""
        return True

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:  # noqa: ARG002 (what others need)
        """Return the rule by which a request's blocks are verified."""
        return AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.RATIO

    def needs_trust(self, params: SamplingParams) -> bool:
        """Return whether what a device sends or draws could change the response."""
        return self.judged or not (params.greedy or self.reproducible)

    def deferral(self, terms: RoundTerms) -> Deferral | None:  # noqa: ARG002 (what others need)
        """Return what the verifier leaves to the device after a rejection; None if it draws corrections itself.

        A protocol that defers keeps ``DrawnRow.numerators``. Any device with the same draft model can compute that row
        again and draw a pending correction of another device, without knowing the protocol: so the numerators are those
        of ``fixed_point_row``, and no others.
        """
        return None

    def rejection_s(self, terms: RoundTerms) -> float:  # noqa: ARG002 (what others need)
        """Return the expected seconds on the link that a rejection costs beyond the exchange of every round."""
        return 0.0

    def again_s(self, terms: RoundTerms, plan: DraftPlan, mismatches: float) -> float:  # noqa: ARG002 (what others need)
        """Return the seconds on the link of a second step with this expected number of mismatches, at least one."""
        return 0.0

    def fault(self, draft: Draft, params: SamplingParams) -> str | None:  # noqa: ARG002 (what others need)
        """Return what is wrong with a block that was read, or None. Devices are not trusted to draw correctly."""
        return None


def block(
    request: DraftRequest,
    token_ids: tuple[int, ...],
    parents: tuple[int, ...] | None = None,
    distribution: DraftDistribution = None,
) -> Draft:
    """Return a decoded block, completed by what the request says."""
    position = request.feedback_position + len(request.feedback)
    return Draft(request.generation, request.round, position, token_ids, parents=parents, distribution=distribution)


def distribution_as(kind: type[Sent], draft: Draft) -> Sent:
    """Return a block's distribution as the type its protocol sends; another type is a ``MessageError``."""
    if not isinstance(draft.distribution, kind):
        raise MessageError(f"needs a {kind.__name__} to send, found a {type(draft.distribution).__name__}")
    return draft.distribution

"""What a drafter engine promises: the contract between a drafter and whatever holds its model and KV."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from outrider.contracts.exchanged import ArrayData, CorrectionSource, DraftDistribution, FloatRow, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationId, ProtocolName
from outrider.contracts.verifying import KvUsage, OpenGeneration

# A token, and the probability that it is the target's choice behind what it is drafted behind.
Child = tuple[int, float]


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What to draft in one round, and what to send of it."""

    protocol: ProtocolName  # decides what the tokens are drawn from and what crosses the link
    window: int  # tokens on the longest path, 0..K_max; 0 only brings the drafter's KV up to date
    expansion: tuple[int, ...] = ()  # children by depth, ``window`` numbers (TSLT definition 4.5); () is a chain
    rows: int = 0  # if any: nodes, at most, of a tree that the device grows where it is sure (``drafting.growing``)

    @property
    def is_tree(self) -> bool:
        """Whether a block says its nodes' parents."""
        return bool(self.expansion or self.rows)

    @property
    def nodes(self) -> int:
        """Tokens in a full block."""
        if self.rows:
            return self.rows
        return sum(accumulate(self.expansion, mul)) if self.expansion else self.window


@dataclass(frozen=True, slots=True)
class DraftTerms:
    """What a drafter is told once per generation, besides the generation itself.

    A correction that ends the response is sent at once, with nothing behind it.
    """

    wire: WireFormat  # how messages are written
    end_ids: tuple[int, ...] = ()  # tokens that end the response
    last_position: int = 2**31  # absolute position of the last token the response may have


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest(ArrayData):
    """Ask for one block.

    ``feedback`` replaces whatever the drafter has from ``feedback_position`` on; ``prefix_hash`` is that of the whole
    committed sequence then (``outrider.contracts.prefix``), so a drafter that has another one says ``NeedsPrefix``.

    Attributes:
        correction: set if the token behind the committed ones is the device's to draw: it draws it from the residual
            of this and its own distribution there, sends it, and drafts behind it.
        price: for a device that drafts while it pays, a chain or a tree that grows; None: tokens cost nothing.
    """

    generation: GenerationId
    round: int
    feedback_position: int  # tokens of the committed sequence the drafter is assumed to have already
    feedback: tuple[int, ...]  # committed tokens from there on
    prefix_hash: int
    plan: DraftPlan
    correction: CorrectionSource | None = None
    price: DraftPrice | None = None
    want_hidden: bool = False  # whether a chain's hidden states are wanted; they do not cross the link


@dataclass(frozen=True, slots=True, eq=False)
class Draft(ArrayData):
    """One drafted block, tokens and what is known about them.

    Attributes:
        token_ids: the chain's tokens, or a tree's nodes, parents first, children of one node side by side. Fewer than
            were ordered, at worst none, where the context is full or the device stops a chain.
        hidden: ``[K, d]`` float32, final-norm hidden state each token of a chain was drawn from, on request.
    """

    generation: GenerationId
    round: int
    position: int  # committed tokens before the correction, or before the first draft token if there is none
    token_ids: tuple[int, ...]
    correction: int | None = None  # the token drawn in place of the last rejected one, if the request asked for it
    parents: tuple[int, ...] | None = None  # None for a chain; else as ``Block.parents``
    distribution: DraftDistribution = None  # what the tokens were drawn from, as the protocol's message tells it
    hidden: FloatRow | None = None


@dataclass(frozen=True, slots=True)
class NeedsPrefix:
    """The drafter does not hold the assumed prefix (closed, evicted, restarted): open it again."""

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class NeedsRow:
    """No candidate for the correction was taken: the target row itself is needed (the same round, asked again)."""

    generation: GenerationId
    round: int


DraftAnswer = Draft | NeedsPrefix | NeedsRow


class DrafterEngine(Protocol):
    """Draft model and resident KV for the generations it holds. Not thread-safe: one caller at a time.

    What is drafted depends on the model, the committed tokens and the request alone: not on windows, on other
    generations, on memory, or on the order in which blocks were asked for. Where an engine ends a chain early, that is
    decided from what the next token would be drawn from, never from the token; beside that from what verdicts told of
    its generation, and of others before it was opened.
    """

    @property
    def max_context_tokens(self) -> int:
        """Positions one generation may have. A block that would need more is drafted shorter, at worst empty."""
        ...

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Hold a generation (costs no forward pass; its prefix is computed by the next steps).

        Raises:
            ContextTooLongError: it leaves no position to draft.
        """
        ...

    def submit(self, request: DraftRequest) -> None:
        """Start a block (at most one per generation at a time; a new one replaces the old, which is never answered).

        Of a generation that is not held, or is held with other tokens than the request assumes, ``step`` answers
        ``NeedsPrefix``. The last request once more is answered as before; nothing is computed for it.

        Raises:
            UnsupportedBlockError: this engine does not draft what the plan asks for; nothing has changed.
        """
        ...

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """One batched forward pass for all started blocks, or these alone; answers those that became complete.

        A shorter block does not wait for a longer one. ``NeedsRow`` is answered where no candidate was taken.

        Raises:
            Exception: it went wrong. Each of its blocks is as if it had just been started, or is complete and answered
                by the next step.
        """
        ...

    def started(self) -> tuple[GenerationId, ...]:
        """Whose blocks a pass is needed for."""
        ...

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work."""
        ...

    def close(self, generation: GenerationId) -> None:
        """Forget a generation and its block. Unknown ones are ignored."""
        ...

    def usage(self) -> KvUsage: ...

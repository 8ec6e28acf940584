"""Contract between a drafter and its engine, which holds the draft model and the KV of its generations."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from outrider.contracts.exchanged import ArrayData, CorrectionSource, DraftDistribution, FloatRow, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationId, ProtocolName
from outrider.contracts.verifying import KvUsage, OpenGeneration

# A token, and the probability that the target chooses it after the tokens before it.
Child = tuple[int, float]


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Plan of one round's draft, and of the message it is sent in."""

    protocol: ProtocolName  # decides which distribution tokens are drawn from and what is sent over the link
    window: int  # tokens on the longest path, 0..K_max; with 0 only the drafter's KV is brought up to date
    expansion: tuple[int, ...] = ()  # children by depth, ``window`` numbers (TSLT definition 4.5); () is a chain
    rows: int = 0  # 0: no dynamic tree; else the most nodes of a tree grown by confidence (``drafting.growing``)

    @property
    def is_tree(self) -> bool:
        return bool(self.expansion or self.rows)

    @property
    def nodes(self) -> int:
        if self.rows:
            return self.rows
        return sum(accumulate(self.expansion, mul)) if self.expansion else self.window


@dataclass(frozen=True, slots=True)
class DraftTerms:
    """Constants of a generation that a drafter receives when it opens it.

    A correction that ends the response is sent at once, with nothing drafted after it.
    """

    wire: WireFormat  # format of all messages
    end_ids: tuple[int, ...] = ()  # tokens that end the response
    last_position: int = 2**31  # absolute position of the last token the response may have


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest(ArrayData):
    """Ask for one block.

    ``feedback`` replaces all tokens the drafter holds from ``feedback_position`` on. ``prefix_hash`` is the hash of the
    whole committed sequence after that (``outrider.contracts.prefix``); a drafter with another one answers
    ``NeedsPrefix``.
    """

    generation: GenerationId
    round: int
    feedback_position: int  # number of committed tokens the drafter is assumed to hold already
    feedback: tuple[int, ...]  # committed tokens from there on
    prefix_hash: int
    plan: DraftPlan
    # set if the device draws the token after the committed ones. It draws from the residual of this row and its own
    # distribution at that position, sends the token, and drafts after it.
    correction: CorrectionSource | None = None
    # for a device that stops a chain or a growing tree where tokens no longer pay; None: tokens cost nothing
    price: DraftPrice | None = None
    want_hidden: bool = False  # whether to return a chain's hidden states; these are not sent over the link


@dataclass(frozen=True, slots=True, eq=False)
class Draft(ArrayData):
    """One drafted block: its tokens, and what is known of their distribution."""

    generation: GenerationId
    round: int
    position: int  # committed tokens before the correction, or before the first draft token if there is none
    # the chain's tokens, or a tree's nodes with parents first and siblings adjacent. May be fewer than ordered, even
    # none, where the context is full or the device stops a chain.
    token_ids: tuple[int, ...]
    correction: int | None = None  # the token drawn in place of the last rejected one, if the request asked for it
    parents: tuple[int, ...] | None = None  # None for a chain; else as ``Block.parents``
    distribution: DraftDistribution = None  # what the tokens were drawn from, as the protocol's message encodes it
    # ``[K, d]`` float32, the final-norm hidden state that each token of a chain was drawn from, on request
    hidden: FloatRow | None = None


@dataclass(frozen=True, slots=True)
class NeedsPrefix:
    """The drafter does not hold the assumed prefix (closed, evicted, restarted): open the generation again."""

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class NeedsRow:
    """No candidate for the correction was accepted: repeat the round with the target row itself."""

    generation: GenerationId
    round: int


DraftAnswer = Draft | NeedsPrefix | NeedsRow


class DrafterEngine(Protocol):
    """Draft model with resident KV. Not thread-safe: one caller at a time.

    A draft depends only on the model, the committed tokens and the request: not on windows, other generations, memory
    or the order of requests. An engine that stops a chain early decides so from the distribution of the next token,
    never from the token drawn. It may also use earlier verdicts, of this generation and of those before it.
    """

    @property
    def max_context_tokens(self) -> int:
        """Positions a generation may have. A block that would exceed them is drafted shorter, possibly empty."""

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Hold a generation; run no forward pass (later steps compute its prefix).

        Raises:
            ContextTooLongError: it leaves no position to draft.
        """

    def submit(self, request: DraftRequest) -> None:
        """Start a block. A generation has at most one: a new one replaces it, and the old one is never answered.

        If the generation is not held, or with other tokens than the request assumes, ``step`` answers ``NeedsPrefix``.
        A repetition of the last request is answered as before, without computation.

        Raises:
            UnsupportedBlockError: this engine cannot draft the plan; nothing has changed.
        """

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """Run one batched forward pass for all started blocks, or those in ``among``; return the completed answers.

        A shorter block does not wait for a longer one. The answer is ``NeedsRow`` where no candidate was accepted.

        Raises:
            Exception: the pass failed. Each of its blocks is as if it had just been started, or is complete and
                answered by the next step.
        """

    def started(self) -> tuple[GenerationId, ...]: ...

    @property
    def busy(self) -> bool: ...

    def close(self, generation: GenerationId) -> None:
        """Forget a generation and its block; ignore an unknown one."""

    def usage(self) -> KvUsage: ...

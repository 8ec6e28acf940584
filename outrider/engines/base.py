"""What an engine promises: the contract between the round loop and whatever holds model and KV.

A *verifier engine* keeps the KV of many generations and verifies one ragged batch of blocks per forward pass. Every
way tokens reach a target model is a block: a prompt's prefill is a block without draft tokens that wants its bonus
token; a round without a drafter (window 0) is the same; a device's own correction is a *forced* token.

The engine commits what it decides: after a ``Verified`` outcome its committed sequence is
``prefix + forced + accepted + next_token`` and its KV is rolled back to that. Draft tokens only ever write to blocks
no other generation can see.

Idempotence: rounds of one generation are numbered upwards; asking for the last round again returns the same outcome
from memory, asking for an older one returns ``Stale``. Nothing is run twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import accumulate
from operator import mul
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider.types import GenerationId, ProtocolName, SamplingParams, TokenLogprobs

FloatRow = npt.NDArray[np.float32]
IntRow = npt.NDArray[np.int64]


class ArrayData:
    """Equality by value for frozen dataclasses that hold arrays."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    def __eq__(self, other: object) -> bool:
        """Whether type and all fields are equal, arrays element by element."""
        if type(other) is not type(self):
            return NotImplemented
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]  # every subclass is a dataclass
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


class AcceptanceRule(StrEnum):
    """Who is accepted, and what is drawn instead: ``matching`` and ``speculative`` in ``outrider/verification``."""

    GREEDY = "greedy"  # accept iff equal to the target's argmax
    SHARED_NOISE = "shared_noise"  # accept iff equal to the token the target draws with the shared noise
    RATIO = "ratio"  # Leviathan et al. 2023, algorithm 1; siblings of a tree were drawn with replacement
    RATIO_DISTINCT = "ratio_distinct"  # the same for trees whose siblings were drawn without replacement
    SEMANTIC = "semantic"  # WISV eq. 27; mismatches judged by a head


RATIO_RULES = frozenset({AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT})


@dataclass(frozen=True, slots=True, eq=False)
class ScalarDraft(ArrayData):
    """Only the drafted tokens' own probabilities crossed the link (DSSD), in fixed point.

    Token i was drawn with probability ``numerators[i] / 2**bits``, exactly.

    Attributes:
        numerators: ``[K]`` int64, 1 .. 2**bits.
        bits: width of one on the link.
    """

    numerators: IntRow
    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class SparseDraft(ArrayData):
    """Truncated draft distributions crossed the link (TSLT eq. 12-14): what the drafter sampled from.

    Row r is ``outrider.distributions.softmax(logits[r])`` over ``token_ids[r]``. A chain has one row per draft token.
    A tree has one per node that has children: the prefix first, then by index.

    Attributes:
        token_ids: rows of ``[k_r]`` int64, strictly ascending.
        logits: rows of ``[k_r]`` float32, as decoded from the message; finite.
    """

    token_ids: tuple[IntRow, ...]
    logits: tuple[FloatRow, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DenseDraft(ArrayData):
    """Whole draft distributions crossed the link (DSD).

    Attributes:
        logits: ``[K, vocab]`` float32, as decoded from the message; -inf for removed tokens.
    """

    logits: FloatRow


DraftDistribution = ScalarDraft | SparseDraft | DenseDraft | None


class FloatField(StrEnum):
    """How a real number crosses the link."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # one fp32 scale per vector


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How messages between coordinator and drafter are written. Both ends of a generation use the same.

    Attributes:
        vocab_size: token ids take ``ceil(log2(vocab_size))`` bits.
        logit_field: of draft logits (dsd, tslt, tslt_tree). Every field is lossless: drafters round, then sample.
        scalar_bits: of a drafted token's fixed-point probability (dssd, dssd_candidates), 8..32. Every width is
            lossless: the drafter samples from multiples of ``2**-scalar_bits``.
        row_field: of the target's probabilities (dssd, dssd_candidates): fp32, fp16 or bf16; only fp32 is lossless.
        top_k: draft tokens that tslt and tslt_tree keep at each position; 0 keeps all.
        top_rho: they keep the smallest set of these whose mass reaches it (TSLT eq. 14, corrected).
        distinct_siblings: tslt_tree draws a node's children without replacement.
    """

    vocab_size: int
    logit_field: FloatField = FloatField.FP16
    scalar_bits: int = 24
    row_field: FloatField = FloatField.FP32
    top_k: int = 32
    top_rho: float = 1.0
    distinct_siblings: bool = True


@dataclass(frozen=True, slots=True)
class Deferral:
    """The device draws the correction itself (DSSD): what it needs for that comes back in place of a token.

    The acceptance test then uses the target's probabilities as rounded by ``row_field``: those that cross the link.

    Attributes:
        row_field: of the target row's probabilities.
        candidates: draws from the target to send instead of the row; 0 sends the row.
    """

    row_field: FloatField = FloatField.FP32
    candidates: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TargetRow(ArrayData):
    """The target's distribution at the position of a deferred correction, as it crosses the link.

    Attributes:
        token_ids: ``[n]`` int64 strictly ascending, the tokens with any probability; None: the whole vocabulary.
        probs: ``[n]`` or ``[vocab]`` float32, rounded by the field; not renormalised.
    """

    token_ids: IntRow | None
    probs: FloatRow


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(ArrayData):
    """Independent draws from the target at the position of a deferred correction, in order.

    Attributes:
        token_ids: ``[m]`` int64, repetitions included.
        probs: ``[m]`` float32, the target's probability of each.
    """

    token_ids: IntRow
    probs: FloatRow


CorrectionSource = TargetRow | Candidates


class Detail(StrEnum):
    """What an outcome carries besides the decision, on demand."""

    MISMATCHES = "mismatches"  # positions where greedy verification disagrees (WISV)


@dataclass(frozen=True, slots=True)
class Block:
    """One round's request to the verifier.

    ``position`` and ``prefix_hash`` name the committed sequence the block assumes (its length, and
    ``outrider.prefix.extend_prefix_hash`` over it); a block that assumes anything else comes back ``Stale`` without a
    forward pass.

    Attributes:
        forced: tokens committed elsewhere and not yet in the engine's sequence; they precede the draft.
        draft: ``K`` token ids, K may be 0. For a tree, nodes in an order where parents come first.
        parents: None for a chain; else ``[K]``, index of each node's parent, -1 for a child of the prefix.
        distribution: what crossed the link of the distributions the draft was sampled from.
        bonus: whether a token is wanted after a fully accepted draft. Always drawn after a rejection, unless
            ``deferral`` says otherwise.
        deferral: set if the device draws corrections. A rejection then has no next token but ``Verified.deferred``;
            so has a block without draft that wants no bonus token: this is how a row is asked for again.
    """

    generation: GenerationId
    round: int
    position: int
    prefix_hash: int
    forced: tuple[int, ...] = ()
    draft: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    distribution: DraftDistribution = None
    rule: AcceptanceRule = AcceptanceRule.GREEDY
    bonus: bool = True
    deferral: Deferral | None = None
    details: frozenset[Detail] = frozenset()


@dataclass(frozen=True, slots=True)
class Resolution:
    """Second half of a two-step outcome: what the device sent for the mismatches (WISV selective upload).

    ``hidden``: ``[M, d]`` float32, drafter hidden states at the requested positions, in their order.
    """

    generation: GenerationId
    round: int
    hidden: FloatRow


@dataclass(frozen=True, slots=True)
class Verified:
    """The round is decided and committed.

    ``accepted_path`` holds indices into ``Block.draft``, root first (for a chain ``0 .. accepted_len - 1``).
    ``next_token`` is the correction or bonus token, None if none was wanted or the device draws it. A deferred
    correction that can only be one token (a row with a single token) is decided here: it is ``next_token`` then.
    """

    generation: GenerationId
    round: int
    accepted_path: tuple[int, ...]
    next_token: int | None
    deferred: CorrectionSource | None = None  # from which the device draws the correction
    cached_tokens: int = 0  # of the prompt, when this generation was opened: KV that was already resident
    logprobs: tuple[TokenLogprobs, ...] = ()  # of forced, accepted and next tokens in turn, if opened with logprobs
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()  # on the first outcome, if opened with prompt_logprobs

    @property
    def accepted_len(self) -> int:
        """Accepted draft tokens of this round, 0..K."""
        return len(self.accepted_path)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The block is not decided yet: submit it again, unchanged.

    Either its prefix is still being computed in chunks (``remaining_tokens`` shrinks), or there was no KV memory
    for it in this batch.
    """

    generation: GenerationId
    round: int
    remaining_tokens: int  # positions still to compute before the block is decided, its own included
    waits_for_memory: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """First half of a two-step outcome: the engine keeps the round's rows until a ``Resolution`` arrives."""

    generation: GenerationId
    round: int
    mismatches: tuple[int, ...]  # indices into ``Block.draft``


@dataclass(frozen=True, slots=True)
class Stale:
    """The block assumed a prefix that is not the committed one, or an older round. Nothing was run."""

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The engine does not hold this generation (closed, or the engine restarted): open it again."""

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The block can never be verified: it does not fit the context, is malformed, or forces an impossible token."""

    generation: GenerationId
    round: int
    reason: str


Outcome = Verified | Unfinished | Undecided | Stale | Unknown | Refused


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A generation the engine is to hold. Prompt and output stay apart: penalties treat them differently."""

    generation: GenerationId
    prompt_ids: tuple[int, ...]  # at least one
    params: SamplingParams
    output_ids: tuple[int, ...] = ()  # tokens committed before (a resumed generation)
    logprobs: int | None = None  # alternatives to report with each token (see TokenLogprobs); None reports nothing
    prompt_logprobs: bool = False  # of the prompt too, once; its KV is then computed, not taken from the cache


@dataclass(frozen=True, slots=True)
class KvUsage:
    """KV memory of an engine, in blocks of ``block_tokens`` positions."""

    block_tokens: int
    total_blocks: int
    used_blocks: int  # held by open generations
    cached_blocks: int  # held by nobody, content kept for sharing; reclaimed least recently used first
    generations: int
    evictions: int  # generations whose KV was dropped to make room, since start


class VerifierEngine(Protocol):
    """Target model and resident KV. Not thread-safe: one caller at a time."""

    def open(self, request: OpenGeneration) -> None:
        """Hold a generation. Costs no forward pass; opening one that is open already replaces it.

        Raises:
            ContextTooLongError: it can never fit the model's context or the KV budget.
        """
        ...

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify a ragged batch in one forward pass; outcomes in the order of ``blocks``, then ``resolutions``.

        At most one block per generation. Cold and warm blocks may stand together: the positions a block lacks are
        computed first, in chunks over as many calls as it takes (``Unfinished``).

        Raises:
            UnsupportedBlockError: before anything is run, if the engine lacks what a block asks for.
        """
        ...

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Forget a generation. Its full committed blocks stay in the prefix cache iff ``keep_cache``.

        Closing an unknown generation does nothing.
        """
        ...

    def usage(self) -> KvUsage:
        """Present KV memory."""
        ...


class DraftStop(StrEnum):
    """When a drafter ends a block before its window is full. Decided before a token is drawn."""

    NEVER = "never"


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What to draft in one round, and what to send of it.

    Attributes:
        protocol: decides what the tokens are drawn from and what crosses the link.
        window: tokens on the longest path, 0..K_max; 0 only brings the drafter's KV up to date.
        expansion: children of every node by depth, ``window`` numbers >= 1 (TSLT definition 4.5); () is a chain.
    """

    protocol: ProtocolName
    window: int
    expansion: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        """Tokens in a full block."""
        return sum(accumulate(self.expansion, mul)) if self.expansion else self.window


@dataclass(frozen=True, slots=True)
class DraftTerms:
    """What a drafter is told once per generation, besides the generation itself.

    Attributes:
        wire: how messages are written.
        end_ids: tokens that end the response; a correction among them is sent at once, with nothing behind it.
        last_position: absolute position of the last token the response may have; likewise.
    """

    wire: WireFormat
    end_ids: tuple[int, ...] = ()
    last_position: int = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest(ArrayData):
    """Ask for one block.

    ``feedback`` replaces whatever the drafter has from ``feedback_position`` on; ``prefix_hash`` is that of the whole
    committed sequence then (``outrider.prefix``), so a drafter that has another one says ``NeedsPrefix``.

    Attributes:
        feedback_position: tokens of the committed sequence the drafter is assumed to have already.
        feedback: committed tokens from there on.
        correction: set if the token behind the committed ones is the device's to draw: it draws it from the residual
            of this and its own distribution there, sends it, and drafts behind it.
    """

    generation: GenerationId
    round: int
    feedback_position: int
    feedback: tuple[int, ...]
    prefix_hash: int
    plan: DraftPlan
    correction: CorrectionSource | None = None
    stop: DraftStop = DraftStop.NEVER
    want_hidden: bool = False


@dataclass(frozen=True, slots=True)
class DraftFeatures:
    """The four features of the logits at one draft position (WISP section 4.1), before temperature."""

    confidence: float  # largest probability
    entropy_nats: float
    margin: float  # probability of the first less that of the second
    logit_std: float


@dataclass(frozen=True, slots=True, eq=False)
class Draft(ArrayData):
    """One drafted block, tokens and what is known about them.

    Attributes:
        position: committed tokens before the correction, or before the first draft token if there is none.
        token_ids: the chain's tokens, or a tree's nodes, parents first, children of one node side by side.
        correction: the token drawn in place of the last rejected one, if the request asked for it.
        parents: None for a chain; else as ``Block.parents``.
        distribution: what the tokens were drawn from, as the protocol's message tells it.
        features: one per token of a chain. They do not cross the link.
        hidden: ``[K, d]`` final-norm hidden state each token was drawn from, on request.
    """

    generation: GenerationId
    round: int
    position: int
    token_ids: tuple[int, ...]
    correction: int | None = None
    parents: tuple[int, ...] | None = None
    distribution: DraftDistribution = None
    features: tuple[DraftFeatures, ...] = ()
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
    """Draft model and resident KV for the generations it holds. Not thread-safe: one caller at a time."""

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Hold a generation (costs no forward pass; its prefix is computed by the next steps).

        Raises:
            ContextTooLongError: it can never fit the model's context or the KV budget.
        """
        ...

    def submit(self, request: DraftRequest) -> None:
        """Start a block (at most one per generation at a time; a new one replaces the old)."""
        ...

    def step(self) -> list[DraftAnswer]:
        """One batched forward pass for all started blocks; answers those that became complete."""
        ...

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work."""
        ...

    def close(self, generation: GenerationId) -> None:
        """Forget a generation and its block. Unknown ones are ignored."""
        ...

    def usage(self) -> KvUsage:
        """Present KV memory."""
        ...

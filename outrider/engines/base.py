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
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider.types import GenerationId, SamplingParams, TokenLogprobs

FloatRow = npt.NDArray[np.float32]
IntRow = npt.NDArray[np.int64]


class AcceptanceRule(StrEnum):
    """Who is accepted, and what is drawn instead (one module each in ``outrider/verification``)."""

    GREEDY = "greedy"  # accept iff equal to the target's argmax
    SHARED_NOISE = "shared_noise"  # accept iff equal to the token the target draws with the shared noise
    RATIO = "ratio"  # Leviathan et al. 2023, algorithm 1; needs the draft distribution
    SEMANTIC = "semantic"  # WISV eq. 27; mismatches judged by a head


@dataclass(frozen=True, slots=True)
class ScalarDraft:
    """Only the drafted tokens' own probabilities crossed the link (DSSD). ``probs``: ``[K]`` float32."""

    probs: FloatRow


@dataclass(frozen=True, slots=True)
class SparseDraft:
    """Truncated draft distributions crossed the link (TSLT eq. 12-14).

    ``token_ids`` and ``probs`` hold K rows of ``[k_i]``; each row sums to 1 and is what the drafter sampled from.
    """

    token_ids: tuple[IntRow, ...]
    probs: tuple[FloatRow, ...]


@dataclass(frozen=True, slots=True)
class DenseDraft:
    """Whole draft distributions crossed the link (DSD). ``probs``: ``[K, vocab]`` float32, rows sum to 1."""

    probs: FloatRow


DraftDistribution = ScalarDraft | SparseDraft | DenseDraft | None


class Detail(StrEnum):
    """What an outcome carries besides the decision, on demand."""

    TARGET_ROW = "target_row"  # the target's row at the first rejected position (DSSD)
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
        bonus: whether a token is wanted after a fully accepted draft. Always drawn after a rejection,
            unless ``defer_correction``.
        defer_correction: the device draws the correction itself (DSSD); the outcome has no next token on rejection.
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
    defer_correction: bool = False
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
    ``next_token`` is the correction or bonus token, None if none was wanted or the device draws it.
    """

    generation: GenerationId
    round: int
    accepted_path: tuple[int, ...]
    next_token: int | None
    target_row: FloatRow | None = None
    cached_tokens: int = 0  # of the prompt, when this generation was opened: KV that was already resident
    logprobs: tuple[TokenLogprobs, ...] = ()  # of the accepted tokens, then of next_token, if opened with logprobs
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
    """The block can never be verified: it does not fit the context, or names ids outside the vocabulary."""

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
class DraftRequest:
    """Ask for one block.

    ``feedback`` replaces whatever the drafter has from ``feedback_position`` on; ``prefix_hash`` is that of the whole
    committed sequence then (``outrider.prefix``), so a drafter that has another one says ``NeedsPrefix``. A window of
    0 only brings the drafter's KV up to date: this is how its prefill is started ahead of need.
    """

    generation: GenerationId
    round: int
    feedback_position: int  # tokens of the committed sequence the drafter is assumed to have already
    feedback: tuple[int, ...]  # committed tokens from there on
    prefix_hash: int
    window: int  # 0..K_max
    rule: AcceptanceRule
    stop: DraftStop = DraftStop.NEVER
    want_hidden: bool = False


@dataclass(frozen=True, slots=True)
class DraftFeatures:
    """The four features of the logits at one draft position (WISP section 4.1), before temperature."""

    confidence: float  # largest probability
    entropy_nats: float
    margin: float  # probability of the first less that of the second
    logit_std: float


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafted block, tokens and what is known about them."""

    generation: GenerationId
    round: int
    position: int  # committed tokens before the first draft token
    token_ids: tuple[int, ...]
    features: tuple[DraftFeatures, ...]  # one per token
    hidden: FloatRow | None = None  # [K, d] final-norm hidden state each token was drawn from, on request


@dataclass(frozen=True, slots=True)
class NeedsPrefix:
    """The drafter does not hold the assumed prefix (closed, evicted, restarted): open it again."""

    generation: GenerationId
    round: int


DraftAnswer = Draft | NeedsPrefix


class DrafterEngine(Protocol):
    """Draft model and resident KV for the generations it holds. Not thread-safe: one caller at a time."""

    def open(self, request: OpenGeneration) -> None:
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

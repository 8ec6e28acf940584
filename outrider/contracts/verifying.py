"""Contract between the round loop and a verifier engine, which holds the target model and the KV of all generations.

An engine keeps the KV of many generations and verifies one ragged batch of blocks per forward pass. All tokens reach
the target in blocks: the prefill of a prompt is a block without draft tokens that asks for a bonus token; so is a
round without a drafter (window 0); a correction that a device drew is a *forced* token of its next block.

The engine commits what it decides. After a ``Verified`` outcome the committed sequence is
``prefix + forced + accepted + next_token``, and the KV is rolled back to it. KV of draft tokens is written only to
KV blocks that no other generation reads.

Idempotence: rounds of a generation have ascending numbers. A repeated request for the last round is answered with the
outcome in memory, a request for an older round with ``Stale``. Neither runs a forward pass.

Two steps: a block under the semantic rule that has mismatches and no hidden states of the drafter is ``Undecided``. It
stays so, however often it is submitted, until its ``Resolution`` arrives or a newer round of the same committed prefix
replaces it (the resolution is then ``Stale``). Eviction does not affect it; closing the generation drops it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from outrider.contracts.cost import VerifyCost
from outrider.contracts.exchanged import ArrayData, CorrectionSource, Deferral, DraftDistribution, FloatRow
from outrider.contracts.link import Csi
from outrider.contracts.plain import Plain
from outrider.contracts.requests import GenerationId, SamplingParams, TokenLogprobs


class AcceptanceRule(StrEnum):
    """Which draft tokens are accepted, and what is drawn instead: see ``matching``, ``speculative``, ``semantic``."""

    GREEDY = "greedy"  # accept iff equal to the target's argmax
    SHARED_NOISE = "shared_noise"  # accept iff equal to the token the target draws with the shared noise
    RATIO = "ratio"  # Leviathan et al. 2023, algorithm 1; siblings of a tree were drawn with replacement
    RATIO_DISTINCT = "ratio_distinct"  # the same for trees whose siblings were drawn without replacement
    SEMANTIC = "semantic"  # lossy: as greedy, but a judge may accept mismatches (WISV eq. 27)


def target_rule(params: SamplingParams) -> AcceptanceRule:
    """Return the rule of rounds without a draft: output equals what the target alone samples, token for token."""
    return AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.SHARED_NOISE


RATIO_RULES = frozenset({AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT})
OWN_CHOICE_RULES = frozenset({AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE})  # output does not depend on drafts


@dataclass(frozen=True, slots=True)
class PromptLookupGrant:
    """Permission for a verifier to draft by prompt lookup in an autonomous run, with the price of a draft row.

    Tokens that a grammar leaves no choice about are drafted as well.
    """

    tokens: int  # largest number of tokens in a draft
    until_position: int  # first position past the response's end; the autonomous run ends there
    blocks: float  # mean number of blocks in a step at the present load
    row_price: float  # relative increase of a step's duration by one more row


@dataclass(frozen=True, slots=True)
class AutonomousRun:
    """Permission for a verifier to decode on its own after a block (``contracts.autonomous_runs``)."""

    until_round: int  # last round the run may reach; a later message may raise it
    end_ids: frozenset[int] = frozenset()  # the run ends after any of these tokens
    lookup: PromptLookupGrant | None = None  # None: no own drafts; a later message may change it


@dataclass(frozen=True, slots=True, eq=False)
class Block(ArrayData, Plain):
    """One round's request to the verifier.

    ``position`` and ``prefix_hash`` identify the committed sequence that the block assumes: its length, and
    ``contracts.prefix.extend_prefix_hash`` over it. If the engine holds another one, it answers ``Stale`` without a
    forward pass.

    Attributes:
        parents: None for a chain; else ``[K]``, the index of each node's parent, -1 for a child of the prefix.
        bonus: whether a token is wanted after a fully accepted draft. After a rejection a token is always drawn, unless
            ``deferral`` is set.
        deferral: set if the device draws corrections. After a rejection ``Verified.deferred`` is set instead of
            ``next_token``. A block without a draft and with ``bonus`` false gets it, too: this requests a row again.
        hidden: ``[K, d]`` float32, semantic rule only: the drafter's final hidden state at each token (WISV full-hidden
            upload). None: the hidden states at mismatches are requested in a second step.
        judge: semantic rule only: key of the judge among those the engine was given: the draft model's configured name.
        autonomous_run: grant for rounds that follow without a request. The engine itself starts none of them;
            ``engines.verifier.stepper`` does.
    """

    generation: GenerationId
    round: int
    position: int
    prefix_hash: int
    forced: tuple[int, ...] = ()  # tokens committed elsewhere that the engine's sequence lacks; they precede the draft
    draft: tuple[int, ...] = ()  # ``K`` token ids, K may be 0. Nodes of a tree are in an order where parents come first
    parents: tuple[int, ...] | None = None
    distribution: DraftDistribution = None  # the part of the draft distributions that was sent over the link
    rule: AcceptanceRule = AcceptanceRule.GREEDY
    bonus: bool = True
    deferral: Deferral | None = None
    hidden: FloatRow | None = None
    channel: Csi | None = None  # semantic rule only: link state given to the judge, in either step; None: not known
    judge: str = ""
    autonomous_run: AutonomousRun | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Resolution(ArrayData):
    """Second half of a two-step outcome: the device's answer for the mismatches (WISV selective upload)."""

    generation: GenerationId
    round: int
    # ``[M, d]`` float32, drafter hidden states at ``Undecided.mismatches``, in that order. None: the device is lost,
    # and every mismatch is rejected.
    hidden: FloatRow | None


@dataclass(frozen=True, slots=True)
class OwnDraft:
    """A verifier's own draft in a round of an autonomous run, and the number of tokens it expected to be accepted."""

    token_ids: tuple[int, ...]
    expected_tokens: float


@dataclass(frozen=True, slots=True, eq=False)
class Verified(ArrayData):
    """The round is decided and committed.

    ``accepted_path`` holds indices into ``Block.draft``, or into ``own_draft`` if that is set, root first; for a chain
    they are ``0 .. accepted_len - 1``. ``next_token`` is the correction or bonus token; None if none was wanted or the
    device draws it. If a deferred correction's row has a single token, that is ``next_token``.
    """

    generation: GenerationId
    round: int
    accepted_path: tuple[int, ...]
    next_token: int | None
    deferred: CorrectionSource | None = None  # the device draws the correction from this
    cached_tokens: int = 0  # prompt tokens whose KV was resident when the generation was opened
    logprobs: tuple[TokenLogprobs, ...] = ()  # of forced, accepted and next tokens in turn, if opened with logprobs
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()  # on the first outcome, if opened with prompt_logprobs
    own_draft: OwnDraft | None = None  # set in rounds of an autonomous run that had one; the stepper drafts it
    overrides: tuple[int, ...] = ()  # accepted nodes that differ from the target's choice and that a judge accepted

    @property
    def accepted_len(self) -> int:
        return len(self.accepted_path)

    @property
    def only_token(self) -> int | None:
        """The next token if the outcome carries nothing else; None otherwise."""
        more = self.accepted_path or self.cached_tokens or self.logprobs or self.prompt_logprobs
        more = more or self.own_draft is not None or self.deferred is not None
        return None if more else self.next_token


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The block is not decided yet: submit it again, unchanged.

    Either its prefix is still being computed in chunks (``remaining_tokens`` decreases), or the batch had no KV memory
    left for it.
    """

    generation: GenerationId
    round: int
    remaining_tokens: int  # positions still to compute before the block is decided, those of the block included
    waits_for_memory: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """First half of a two-step outcome: the round waits for a ``Resolution``; nothing of it is committed yet."""

    generation: GenerationId
    round: int
    mismatches: tuple[int, ...]  # indices into ``Block.draft``, ascending; at least one


@dataclass(frozen=True, slots=True)
class Stale:
    """The block assumes another committed prefix, or is of an older round; nothing was run.

    For a resolution: its round does not wait for one, as it is older, was replaced or was never begun.
    """

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The engine does not hold this generation (closed, or the engine restarted): open it again."""

    generation: GenerationId
    round: int


@dataclass(frozen=True, slots=True)
class BlockRefused:
    """The block can never be verified: it does not fit the context, is malformed, or forces an impossible token.

    For a resolution: it does not fit its round, which still waits.
    """

    generation: GenerationId
    round: int
    reason: str
    too_long: bool = False  # exceeds the context or the KV memory: caused by the request, not by a device
    by_grammar: bool = False  # its grammar exceeds its limits or has no continuation: caused by the request


@dataclass(frozen=True, slots=True)
class Failed:
    """The block or resolution made a pass fail alone, twice in a row; nothing of it is committed.

    Also if its generation could not be opened, or if the model's logits or hidden states for it are NaN or infinite
    (``non_finite``), so that no token can be chosen.
    """

    generation: GenerationId
    round: int
    reason: str
    non_finite: bool = False


Outcome = Verified | Unfinished | Undecided | Stale | Unknown | BlockRefused | Failed


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A generation the engine is to hold. Prompt and output are separate because penalties treat them differently."""

    generation: GenerationId
    prompt_ids: tuple[int, ...]  # at least one
    params: SamplingParams
    output_ids: tuple[int, ...] = ()  # tokens committed before (a resumed generation)
    logprobs: int | None = None  # alternatives to report with each token (see TokenLogprobs); None reports nothing
    prompt_logprobs: bool = False  # also of the prompt, once; its KV is then computed, not taken from the prefix cache
    tenant: str = ""  # prompt lookup may search this tenant's earlier responses; "": those of none
    cache_salt: bytes = b""  # KV is shared among generations of the same salt
    trace_id: str | None = None  # of a sampled request, for the log; never sent to a device
    account: str = ""  # compilation of grammars takes turns by account; never sent to a device


@dataclass(frozen=True, slots=True)
class KvUsage:
    """KV memory of an engine, in blocks of ``block_tokens`` positions."""

    block_tokens: int
    total_blocks: int
    used_blocks: int  # held by open generations
    cached_blocks: int  # held by no generation, kept for sharing; reclaimed least recently used first
    generations: int
    evictions: int  # times a generation lost KV to another since start; the counters below are since start, too
    unowed_evictions: int = 0  # evictions of generations without a deadline
    evicted_blocks: int = 0
    recomputed_tokens: int = 0  # positions computed again after evictions
    host_blocks: int = 0  # size of the host cache; ``host_used_blocks`` of them are in use
    host_used_blocks: int = 0
    swapped_out_blocks: int = 0  # copied to host memory; ``swapped_in_blocks``: copied back
    swapped_in_blocks: int = 0


class VerifierEngine(Protocol):
    """Target model with its resident KV. Not thread-safe: one caller at a time."""

    @property
    def max_context_tokens(self) -> int:
        """Positions a generation may have: the model's context, or fewer if the KV memory holds fewer."""

    def open(self, request: OpenGeneration) -> Future[Any] | None:
        """Hold a generation; run no forward pass. An open generation of the same id is replaced.

        Returns:
            None if it is open; else a future of its grammar, which another thread compiles. Until it is done ``verify``
            would block. It may be cancelled once the generation is closed.

        Raises:
            ContextTooLongError: it can never fit the model's context or the KV budget.
        """

    def prepare(
        self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()
    ) -> Mapping[GenerationId, Future[Any]]:
        """Begin what ``verify`` of these needs besides a forward pass: grammar masks.

        Returns:
            Generations whose blocks should be held back, each with the future to wait for: their masks take long and
            are made in another thread. Call ``prepare`` again after it. ``verify`` of such a block is correct but may
            block for long.
        """

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify a ragged batch in one forward pass; outcomes in the order of ``blocks``, then ``resolutions``.

        At most one block per generation. Cold and warm blocks may be mixed: positions without KV are computed first, in
        chunks over as many calls as needed (``Unfinished``). Resolutions need no forward pass and are applied first, so
        a block may build on the commit of a resolution in the same call.

        Raises:
            UnsupportedBlockError: before anything is run, if the engine does not implement what a block asks for.
            Exception: the pass failed. Each of its blocks is then either as before the call, or wholly decided and
                answered from memory when it is submitted again. KV evicted for the pass stays evicted.
        """

    def committed(self, generation: GenerationId) -> Sequence[int]:
        """Return the committed sequence, not to be modified; empty if the generation is not held."""

    def forced(self, generation: GenerationId, most: int) -> tuple[int, ...]:
        """Return up to ``most`` tokens that must come next, as the generation's grammar allows no others.

        Blocks until the grammar is compiled; empty if the generation has none, or is not held.
        """
        ...

    def due(self, generation: GenerationId, at_s: float) -> None:
        """Set the time at which the response falls behind its promise; the latest is evicted first.

        Times may be of any clock, the same for all generations. Infinity, the default: nothing is promised.
        """

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Forget a generation; ignore an unknown one. ``keep_cache``: keep its full blocks in the prefix cache."""

    def usage(self) -> KvUsage: ...

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Return generations that lost KV in the last ``verify``, each with how many leading positions kept it."""

    def last_pass(self) -> tuple[VerifyCost, ...]:
        """Return the cost of each segment that the last ``verify`` computed; empty if no pass ran.

        Only the engine knows it: chunks, prefix cache and eviction decide how much of a block a pass computes.
        """

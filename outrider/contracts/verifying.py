"""What an engine promises: the contract between the round loop and whatever holds model and KV.

A *verifier engine* keeps the KV of many generations and verifies one ragged batch of blocks per forward pass. Every
way tokens reach a target model is a block: a prompt's prefill is a block without draft tokens that wants its bonus
token; a round without a drafter (window 0) is the same; a device's own correction is a *forced* token.

The engine commits what it decides: after a ``Verified`` outcome its committed sequence is
``prefix + forced + accepted + next_token`` and its KV is rolled back to that. Draft tokens only ever write to blocks
no other generation can see.

Idempotence: rounds of one generation are numbered upwards; asking for the last round again returns the same outcome
from memory, asking for an older one returns ``Stale``. Nothing is run twice.

Two steps: under the semantic rule a block without the drafter's hidden states that has mismatches is ``Undecided``, and
so it stays, asked however often, until its ``Resolution`` comes or a newer round of the same committed prefix is begun
in its place (the resolution is then ``Stale``). Eviction does not touch it; closing the generation drops it.
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
    """Who is accepted, and what is drawn instead: ``matching`` and ``speculative`` in ``outrider/verification``."""

    GREEDY = "greedy"  # accept iff equal to the target's argmax
    SHARED_NOISE = "shared_noise"  # accept iff equal to the token the target draws with the shared noise
    RATIO = "ratio"  # Leviathan et al. 2023, algorithm 1; siblings of a tree were drawn with replacement
    RATIO_DISTINCT = "ratio_distinct"  # the same for trees whose siblings were drawn without replacement
    SEMANTIC = "semantic"  # lossy: greedy, but a judge may let mismatches pass (WISV eq. 27); ``semantic``


def target_rule(params: SamplingParams) -> AcceptanceRule:
    """The rule by which the output is token for token the target's own, and that of a round without a draft."""
    return AcceptanceRule.GREEDY if params.greedy else AcceptanceRule.SHARED_NOISE


RATIO_RULES = frozenset({AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT})
OWN_CHOICE_RULES = frozenset({AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE})  # of the target, whatever is drafted


@dataclass(frozen=True, slots=True)
class PromptLookupGrant:
    """Permission for a verifier to draft by prompt lookup while it decodes autonomously, and the price of a row.

    Attributes:
        tokens: of a draft, at most.
        until_position: of the first token that the response cannot take any more: there the autonomous run ends.
        blocks: in one of its steps, as these are now.
        row_price: by so much of itself a row more makes such a step longer.
    """

    tokens: int
    until_position: int
    blocks: float
    row_price: float


@dataclass(frozen=True, slots=True)
class AutonomousRun:
    """Permission for a verifier to go on alone behind a block (``contracts.autonomous_runs``)."""

    until_round: int  # the last round it may make by itself; a later message may raise it
    end_ids: frozenset[int] = frozenset()  # a token of these is the last
    lookup: PromptLookupGrant | None = None  # to draft by itself; a later message may change that, too


@dataclass(frozen=True, slots=True, eq=False)
class Block(ArrayData, Plain):
    """One round's request to the verifier.

    ``position`` and ``prefix_hash`` name the committed sequence the block assumes (its length, and
    ``contracts.prefix.extend_prefix_hash`` over it); a block that assumes anything else comes back ``Stale`` without a
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
        hidden: ``[K, d]`` float32, semantic rule only: the final hidden state the drafter chose each token from (WISV
            full-hidden upload). None: they are asked for where they matter, in a second step.
        channel: semantic rule only: the link as the judge is to see it, whenever the hidden states come; None: not
            known.
        judge: semantic rule only: whose answers hold, of those the engine was given: the draft model, as configured.
        autonomous_run: rounds that are to follow without being asked for. An engine makes none by itself: whoever steps
            it does (``engines.verifier.stepper``).
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
    hidden: FloatRow | None = None
    channel: Csi | None = None
    judge: str = ""
    autonomous_run: AutonomousRun | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Resolution(ArrayData):
    """Second half of a two-step outcome: what the device sent for the mismatches (WISV selective upload).

    Attributes:
        hidden: ``[M, d]`` float32, drafter hidden states at the requested positions, in their order. None: the device
            is lost, and every mismatch is rejected.
    """

    generation: GenerationId
    round: int
    hidden: FloatRow | None


@dataclass(frozen=True, slots=True)
class OwnDraft:
    """A verifier's own draft in a round of an autonomous run, and how many of its tokens it expected to be accepted."""

    token_ids: tuple[int, ...]
    expected_tokens: float


@dataclass(frozen=True, slots=True, eq=False)
class Verified(ArrayData):
    """The round is decided and committed.

    ``accepted_path`` holds indices into ``Block.draft``, or ``own_draft``, root first (for a chain
    ``0 .. accepted_len - 1``).
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
    own_draft: OwnDraft | None = None  # of a round that followed by itself; whoever steps the engine drafts it
    overrides: tuple[int, ...] = ()  # accepted nodes that a judge let pass: not what the target would have said there

    @property
    def accepted_len(self) -> int:
        """Accepted draft tokens of this round, 0..K."""
        return len(self.accepted_path)

    @property
    def only_token(self) -> int | None:
        """The next token, where there is nothing else to tell."""
        more = self.accepted_path or self.cached_tokens or self.logprobs or self.prompt_logprobs
        more = more or self.own_draft is not None or self.deferred is not None
        return None if more else self.next_token


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
    """First half of a two-step outcome: the round waits for a ``Resolution``; nothing of it is committed yet."""

    generation: GenerationId
    round: int
    mismatches: tuple[int, ...]  # indices into ``Block.draft``, ascending; at least one


@dataclass(frozen=True, slots=True)
class Stale:
    """The block assumed a prefix that is not the committed one, or an older round. Nothing was run.

    Or the round a resolution is for does not wait for one: it is older, was replaced, or never came.
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

    Or the resolution does not fit its round, which goes on waiting.
    """

    generation: GenerationId
    round: int
    reason: str
    too_long: bool = False  # it does not fit the context or the KV: the request's own matter, and nobody's fault
    by_grammar: bool = False  # its grammar takes too much to follow, or leads nowhere: likewise


@dataclass(frozen=True, slots=True)
class Failed:
    """Passes with this block, or this resolution, in them go wrong: it failed alone, twice. Nothing is committed.

    Or its generation could not be opened, or the numbers that the model gives for it are ``non_finite``: no token can
    be chosen by them.
    """

    generation: GenerationId
    round: int
    reason: str
    non_finite: bool = False


Outcome = Verified | Unfinished | Undecided | Stale | Unknown | BlockRefused | Failed


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A generation the engine is to hold. Prompt and output stay apart: penalties treat them differently."""

    generation: GenerationId
    prompt_ids: tuple[int, ...]  # at least one
    params: SamplingParams
    output_ids: tuple[int, ...] = ()  # tokens committed before (a resumed generation)
    logprobs: int | None = None  # alternatives to report with each token (see TokenLogprobs); None reports nothing
    prompt_logprobs: bool = False  # of the prompt too, once; its KV is then computed, not taken from the cache
    tenant: str = ""  # whose earlier responses may be looked through; nobody's if empty
    cache_salt: bytes = b""  # KV is shared among generations of the same salt
    trace_id: str | None = None  # of its request, where that is sampled: for the log. No device is told
    account: str = ""  # it is charged to: whose grammars take turns. No device is told


@dataclass(frozen=True, slots=True)
class KvUsage:
    """KV memory of an engine, in blocks of ``block_tokens`` positions."""

    block_tokens: int
    total_blocks: int
    used_blocks: int  # held by open generations
    cached_blocks: int  # held by nobody, content kept for sharing; reclaimed least recently used first
    generations: int
    evictions: int  # times a generation lost KV to make room, since start; likewise what follows
    unowed_evictions: int = 0  # of these, of generations to which nothing was owed
    evicted_blocks: int = 0
    recomputed_tokens: int = 0  # positions computed again because of that
    host_blocks: int = 0  # of host memory, for what is given up; ``host_used_blocks`` of them in use
    host_used_blocks: int = 0
    swapped_out_blocks: int = 0  # copied to host memory; ``swapped_in_blocks`` back
    swapped_in_blocks: int = 0


class VerifierEngine(Protocol):
    """Target model and resident KV. Not thread-safe: one caller at a time."""

    @property
    def max_context_tokens(self) -> int:
        """Positions one generation may have: those of the model, or fewer where KV memory holds no more."""
        ...

    def open(self, request: OpenGeneration) -> Future[Any] | None:
        """Hold a generation. Costs no forward pass; opening one that is open already replaces it.

        Returns:
            What is still made of it in another thread (its grammar); None if it is open. Until that is done ``verify``
            would wait for it, and cancelling it is all right if the generation is closed.

        Raises:
            ContextTooLongError: it can never fit the model's context or the KV budget.
        """
        ...

    def prepare(
        self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()
    ) -> Mapping[GenerationId, Future[Any]]:
        """Begin what ``verify`` of these needs besides a forward pass: masks of grammars.

        Returns:
            Whose blocks should wait, and for what: for masks that take long and are made in another thread. Then this
            is asked again. ``verify`` of such a block is right but may take long.
        """
        ...

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify a ragged batch in one forward pass; outcomes in the order of ``blocks``, then ``resolutions``.

        At most one block per generation. Cold and warm blocks may stand together: the positions a block lacks are
        computed first, in chunks over as many calls as it takes (``Unfinished``). Resolutions need no forward pass and
        are applied first, so a block may build on what the resolution beside it commits.

        Raises:
            UnsupportedBlockError: before anything is run, if the engine lacks what a block asks for.
            Exception: the pass went wrong. Of each of its blocks all is as if it had never been asked for, or the block
                is decided whole and answered from memory; whose KV was evicted for the pass has lost it.
        """
        ...

    def committed(self, generation: GenerationId) -> Sequence[int]:
        """The committed sequence of a generation, not to be changed; empty if it is not held."""
        ...

    def due(self, generation: GenerationId, at_s: float) -> None:
        """When its response falls behind its promise: whoever is due last goes first where memory is short.

        On any clock, as long as it is the same for all; infinity where nothing is owed, as from the beginning.
        """
        ...

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Forget a generation. Its full committed blocks stay in the prefix cache iff ``keep_cache``.

        Closing an unknown generation does nothing.
        """
        ...

    def usage(self) -> KvUsage: ...

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Who lost KV in the last ``verify``, and how many leading positions of it need no computing still."""
        ...

    def last_pass(self) -> tuple[VerifyCost, ...]:
        """What the last ``verify`` computed, of each block that computed something; none where nothing ran.

        Only the engine knows: chunks, the prefix cache and eviction decide how much of a block a pass computes.
        """
        ...

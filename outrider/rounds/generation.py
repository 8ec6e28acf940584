"""State of one response: committed tokens, open rounds, pending correction, what the verifier has, its end. No I/O."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from outrider.contracts.committed import CommittedRound
from outrider.contracts.errors import IllegalTransitionError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import (
    FinishReason,
    GenerationId,
    GenerationRequest,
    ProtocolName,
    RoundStats,
    TokenOrigin,
)
from outrider.contracts.tracing import trace_id_of
from outrider.contracts.verifying import OpenGeneration, Verified
from outrider.rounds.corrections.correction import Correction
from outrider.rounds.states import (
    GENERATION_TRANSITIONS,
    ROUND_TRANSITIONS,
    CorrectionEvent,
    GenerationEvent,
    GenerationState,
    RoundEvent,
    RoundState,
    after,
)
from outrider.scheduling.attribution import ViolationCause

_DRAFTED = (TokenOrigin.ACCEPTED, TokenOrigin.LOOKUP, TokenOrigin.OVERRIDE)


class VerifiedDraft(NamedTuple):
    """What a verified block tested, and how it was drafted."""

    token_ids: Sequence[int] = ()
    forced: Sequence[int] = ()  # tokens that the block forced and that are not committed yet
    parents: Sequence[int] | None = None  # of each node of a tree; None for a chain
    protocol: ProtocolName | None = None
    draft_model: str | None = None  # whose devices alone can draw a correction that the outcome defers
    exact: bool = True  # whether the round keeps the target's distribution
    trimmed_tokens: int = 0  # drafted, but not verified
    wrong_tokens: int = 0  # drafted, but refuted before they arrived: another token was committed in their place
    judged_tokens: int = 0  # mismatches on which a judge decided
    from_lookup: bool = False  # the draft is by prompt lookup, not a device's

    def decided(self, outcome: Verified) -> tuple[list[int], list[TokenOrigin]]:
        accepted = [self.token_ids[i] for i in outcome.accepted_path]
        after = [] if outcome.next_token is None else [outcome.next_token]
        last = outcome.accepted_path[-1] if outcome.accepted_path else -1
        # The target's own token is a correction where draft tokens were left: in a tree, where the last node accepted
        # (-1: the root) has children. Otherwise it is a bonus token.
        rejected = len(accepted) < len(self.token_ids) if self.parents is None else last in self.parents
        proposed = TokenOrigin.LOOKUP if self.from_lookup else TokenOrigin.ACCEPTED
        origins = [TokenOrigin.CORRECTION] * len(self.forced) + [proposed] * len(accepted)
        for index in outcome.overrides:
            origins[len(self.forced) + index] = TokenOrigin.OVERRIDE
        origins += [TokenOrigin.CORRECTION if rejected else TokenOrigin.VERIFIER] * len(after)
        return [*self.forced, *accepted, *after], origins


UNDRAFTED = VerifiedDraft()


class Generation:
    """Mutable state of one response, changed by its ``RoundMachine`` only."""

    def __init__(self, request: GenerationRequest, *, eos_token_ids: Sequence[int], max_context_tokens: int) -> None:
        """Start in state NEW, with the tokens and statistics of a resumed request.

        ``max_context_tokens`` bounds prompt and output together.
        """
        self.request = request
        self.state = GenerationState.NEW
        self.stats = request.stats
        self.output_ids: list[int] = list(request.output_ids)
        self.prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, (*request.prompt_ids, *request.output_ids))
        self.correction = Correction(request.correction_by)  # the next token, if a device is to draw it
        self.unverified: tuple[int, ...] = ()  # committed tokens that the verifier does not have yet
        self._verifier_prefix_hash = self.prefix_hash  # valid only while ``unverified`` is not empty
        self.open_rounds: dict[int, RoundState] = {}
        self._next_round = 0
        self._eos = frozenset(request.stop_ids).union(() if request.ignore_eos else eos_token_ids)
        self._params = request.params
        if self._eos and request.min_tokens > 0:
            self._params = replace(
                request.params,
                withheld_ids=tuple(sorted(self._eos)),
                withheld_until=len(request.prompt_ids) + request.min_tokens,
            )
        self._max_output = min(request.max_tokens, max_context_tokens - len(request.prompt_ids))

    @property
    def name(self) -> GenerationId:
        return self.request.generation

    @property
    def log_names(self) -> dict[str, str | None]:
        """Fields of each log line about this response."""
        request = self.request
        trace_id = trace_id_of(request.trace)
        return {"request_id": request.request_id, "generation": request.generation, "trace_id": trace_id}

    @property
    def correction_by(self) -> str | None:
        """The draft model whose device is to draw the next token; None if no correction is pending."""
        return self.correction.by

    @property
    def position(self) -> int:
        """Committed tokens, prompt included."""
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def verifier_position(self) -> int:
        """Committed tokens that the verifier has, prompt included."""
        return self.position - len(self.unverified)

    @property
    def verifier_prefix_hash(self) -> int:
        return self._verifier_prefix_hash if self.unverified else self.prefix_hash

    def opening(self) -> OpenGeneration:
        """Return what an engine needs to hold this response with all its committed tokens."""
        request = self.request
        return OpenGeneration(
            generation=self.name,
            prompt_ids=request.prompt_ids,
            params=self._params,
            output_ids=tuple(self.output_ids),
            logprobs=request.logprobs,
            prompt_logprobs=request.prompt_logprobs and self.stats.rounds == 0,
            tenant=request.tenant,
            cache_salt=request.cache_salt,
        )

    @property
    def last_position(self) -> int:
        """Absolute position of the last token the response may have."""
        return len(self.request.prompt_ids) + self._max_output - 1

    @property
    def end_ids(self) -> frozenset[int]:
        return self._eos

    @property
    def remaining_tokens(self) -> int:
        """Tokens the response may still take. A round commits one more than it accepts: drafts need one fewer."""
        return max(0, self._max_output - len(self.output_ids))

    def happened(self, event: GenerationEvent) -> None:
        """Apply an event by ``GENERATION_TRANSITIONS``. At the end all open rounds are forgotten."""
        self.state = after(GENERATION_TRANSITIONS, "a generation", self.state, event)
        if self.state is not GenerationState.ACTIVE:
            self.open_rounds.clear()

    def begin_round(self, *, drafting: bool, ahead: int = 0) -> int:
        """Open a round and return its number. Without a drafter there is no block to wait for: it starts as RECEIVED.

        With ``ahead`` its number leaves room below for that many rounds of an autonomous run, begun before it is
        verified; ``round_happened`` moves the numbering past it once it is over.
        """
        number = self._next_round + ahead
        self._next_round += not ahead
        self.open_rounds[number] = RoundState.REQUESTED if drafting else RoundState.RECEIVED
        return number

    def begin_following_round(self, number: int) -> None:
        """Open a round of an autonomous run. The verifier numbers these itself and is computing this one already."""
        self._next_round = max(self._next_round, number + 1)
        self.open_rounds[number] = RoundState.VERIFYING

    def round_happened(self, number: int, event: RoundEvent) -> RoundState:
        """Apply an event by ``ROUND_TRANSITIONS`` and return the new state. A round in a final state is forgotten.

        Raises:
            IllegalTransitionError: no such round is open, or the event is impossible in its state.
        """
        if number not in self.open_rounds:
            raise IllegalTransitionError(f"round {number} of {self.name} is not open and cannot take {event}")
        state = after(ROUND_TRANSITIONS, "a round", self.open_rounds[number], event)
        if state in (RoundState.COMMITTED, RoundState.STALE, RoundState.LOST):
            del self.open_rounds[number]
            self._next_round = max(self._next_round, number + 1)
        else:
            self.open_rounds[number] = state
        return state

    def commit_correction(self, token_id: int) -> CommittedRound:
        """Commit a correction that a device drew. The verifier gets it with the next block, as a forced token.

        It is final before that block is verified: no outcome could change it.
        """
        self.correction.happened(CorrectionEvent.COMMITTED)
        self._verifier_prefix_hash = self.prefix_hash
        committed = self._take([token_id], [TokenOrigin.CORRECTION])
        self.unverified = committed.token_ids
        return committed

    def forgo_correction(self) -> None:
        """Let the target draw a pending correction, as no device can draw it from the residual: inexact."""
        self.correction.happened(CorrectionEvent.GIVEN_UP)
        self.stats += RoundStats(inexact_rounds=1)

    def forgo_draft(self) -> None:
        """Count a lost draft of a ratio rule as an inexact round: its content may be why it was lost."""
        self.stats += RoundStats(inexact_rounds=1)

    def verifier_lost(self) -> None:
        """Forget what the verifier lacked: it will be opened again with all committed tokens."""
        self.unverified = ()

    def commit(self, outcome: Verified, draft: VerifiedDraft = UNDRAFTED) -> CommittedRound:
        """Append a verified round's tokens to the response and count it. Tokens behind its end are dropped."""
        self.round_happened(outcome.round, RoundEvent.VERIFIED)
        self.unverified = ()
        committed = self._take(*draft.decided(outcome), outcome)
        if outcome.deferred is not None and committed.finish is None:
            self.correction.defer(outcome.deferred, draft.draft_model)
        elif self.correction.by is not None:  # a forced correction that waited for its log-probability is final now
            self.correction.happened(CorrectionEvent.COMMITTED)
        tested = bool(draft.token_ids or draft.wrong_tokens)
        if not (tested or draft.trimmed_tokens) and draft.exact and self.stats.rounds:
            self.stats = self.stats.round_without_draft()
            return committed
        self.stats += RoundStats(
            rounds=1,
            speculative_rounds=int(tested),
            drafted_tokens=len(draft.token_ids) + draft.trimmed_tokens + draft.wrong_tokens,
            accepted_tokens=accepted_of(committed.origins),
            cached_tokens=outcome.cached_tokens if self.stats.rounds == 0 else 0,
            inexact_rounds=int(not draft.exact),
            protocols=((draft.protocol, 1),) if tested and draft.protocol is not None else (),
            trimmed_tokens=draft.trimmed_tokens,
            judged_tokens=draft.judged_tokens,
            overrides=self._overrides(committed.origins),
            kept_drafts=(0,) * accepted_of(committed.origins) + (1,) if tested else (),
        )
        return committed

    def late(self, cause: ViolationCause | None) -> None:
        """Count a late round by its cause; None: it was not late."""
        if cause is None:
            return
        queue, compute = cause is ViolationCause.QUEUE, cause is ViolationCause.COMPUTE
        self.stats += RoundStats(late_queue_rounds=int(queue), late_compute_rounds=int(compute))

    def exchanged(self, up_bits: int, down_bits: int) -> None:
        self.stats += RoundStats(payload_up_bits=up_bits, payload_down_bits=down_bits)

    def _take(
        self, token_ids: list[int], origins: list[TokenOrigin], outcome: Verified | None = None
    ) -> CommittedRound:
        taken, finish = self._until_end(token_ids)
        self.output_ids += taken
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, taken)
        logprobs, prompt_logprobs = ((), ()) if outcome is None else (outcome.logprobs, outcome.prompt_logprobs)
        count = len(taken)
        return CommittedRound(tuple(taken), finish, tuple(origins[:count]), logprobs[:count], prompt_logprobs)

    def swallowed(self, origins: Sequence[TokenOrigin], kept: int = 0) -> None:
        """Take back from the statistics the last tokens, cut off by a stop string; ``kept`` of the draft stay."""
        self.stats = self.stats.taken_back(accepted_of(origins), kept)
        if TokenOrigin.OVERRIDE in origins:
            left = tuple(at for at in self.stats.overrides if at < len(self.output_ids) - len(origins))
            self.stats = replace(self.stats, overrides=left)

    def _overrides(self, origins: Sequence[TokenOrigin]) -> tuple[int, ...]:
        """Indices in the output of those of the last tokens that a judge let pass; ``origins`` are of these tokens."""
        at_first = len(self.output_ids) - len(origins)
        return tuple(at for at, origin in enumerate(origins, at_first) if origin is TokenOrigin.OVERRIDE)

    def _until_end(self, token_ids: list[int]) -> tuple[list[int], FinishReason | None]:
        room = self.remaining_tokens
        for count, token_id in enumerate(token_ids[:room], start=1):
            if token_id in self._eos:
                return token_ids[:count], FinishReason.STOP
        if len(token_ids) >= room:
            return token_ids[:room], FinishReason.LENGTH
        return token_ids, None


def accepted_of(origins: Sequence[TokenOrigin]) -> int:
    """Count the tokens that were drafted, by a device or by prompt lookup."""
    return sum(origin in _DRAFTED for origin in origins)

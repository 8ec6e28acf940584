"""State of one response: committed tokens, what the verifier knows of them, pending correction, end. No I/O."""

from collections.abc import Sequence
from dataclasses import replace

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
from outrider.contracts.verifying import OpenGeneration, Verified
from outrider.rounds.correction import Correction
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


class Generation:
    """One response: its committed tokens, its open rounds, whether it has ended.

    Plain state without I/O; the coordinator drives it and acts on what it returns.
    """

    def __init__(self, request: GenerationRequest, *, eos_token_ids: Sequence[int], max_context_tokens: int) -> None:
        """Start NEW, with what a resumed request brings along. ``max_context_tokens`` bounds prompt and output."""
        self.request = request
        self.state = GenerationState.NEW
        self.stats = request.stats
        self.output_ids: list[int] = list(request.output_ids)
        self.prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, (*request.prompt_ids, *request.output_ids))
        self.correction = Correction(request.correction_by)  # the next token, if a device is to draw it
        self.unverified: tuple[int, ...] = ()  # committed tokens the verifier has not been told of
        self._verifier_prefix_hash = self.prefix_hash  # meant while there are unverified ones
        self.open_rounds: dict[int, RoundState] = {}
        self._next_round = 0
        self._eos = frozenset() if request.ignore_eos else frozenset(eos_token_ids)
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
    def correction_by(self) -> str | None:
        """The draft model a device of which is to draw the next token, if one is."""
        return self.correction.by

    @property
    def position(self) -> int:
        """Committed tokens, prompt included."""
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def verifier_position(self) -> int:
        """Committed tokens the verifier knows of."""
        return self.position - len(self.unverified)

    @property
    def verifier_prefix_hash(self) -> int:
        return self._verifier_prefix_hash if self.unverified else self.prefix_hash

    def opening(self) -> OpenGeneration:
        """What an engine needs to hold this response as it now stands."""
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
        """Tokens that end the response."""
        return self._eos

    @property
    def remaining_tokens(self) -> int:
        """Tokens the response may still take. A draft longer than this less one would be wasted."""
        return max(0, self._max_output - len(self.output_ids))

    def happened(self, event: GenerationEvent) -> None:
        """Move the generation along its table; when it ends, its open rounds go with it."""
        self.state = after(GENERATION_TRANSITIONS, "a generation", self.state, event)
        if self.state is not GenerationState.ACTIVE:
            self.open_rounds.clear()

    def begin_round(self, *, drafting: bool, ahead: int = 0) -> int:
        """Number a new round; without a drafter it needs no block and starts as received.

        As many as ``ahead`` others may be begun before it is verified; their numbers are below its own.
        """
        number = self._next_round + ahead
        self._next_round += not ahead
        self.open_rounds[number] = RoundState.REQUESTED if drafting else RoundState.RECEIVED
        return number

    def begin_following_round(self, number: int) -> None:
        """A round that the verifier makes by itself, and numbers on: it is with the verifier already."""
        self._next_round = max(self._next_round, number + 1)
        self.open_rounds[number] = RoundState.VERIFYING

    def round_happened(self, number: int, event: RoundEvent) -> RoundState:
        """Move one round along its table; a round that is over is forgotten.

        Raises:
            IllegalTransitionError: no such open round, or the event cannot happen to it now.
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
        """Take a token the device drew in place of a rejected one; the verifier is told with the next block.

        It may be sent at once if the target could have said it: the verifier has no more to say of it.
        """
        self.correction.happened(CorrectionEvent.COMMITTED)
        self._verifier_prefix_hash = self.prefix_hash
        committed = self._take([token_id], [TokenOrigin.CORRECTION])
        self.unverified = committed.token_ids
        return committed

    def forgo_correction(self) -> None:
        """Nobody is left who could draw the deferred token from its residual: the target draws it, inexactly."""
        self.correction.happened(CorrectionEvent.GIVEN_UP)
        self.stats += RoundStats(inexact_rounds=1)

    def forgo_draft(self) -> None:
        """A draft that had to be used is not here, and may be missing for what it says: the round is inexact."""
        self.stats += RoundStats(inexact_rounds=1)

    def verifier_lost(self) -> None:
        """The verifier is to be opened again, with all that is committed."""
        self.unverified = ()

    def commit(
        self,
        outcome: Verified,
        draft: Sequence[int],
        forced: Sequence[int] = (),
        parents: Sequence[int] | None = None,
        *,
        protocol: ProtocolName | None = None,
        draft_model: str | None = None,
        exact: bool = True,
        trimmed_tokens: int = 0,
        wrong_tokens: int = 0,
        judged_tokens: int = 0,
        from_lookup: bool = False,
    ) -> CommittedRound:
        """Take a verified round's tokens into the response, up to its end.

        ``draft`` and ``parents`` are the block's; ``forced`` are those of its forced tokens that are not committed yet.
        Tokens behind an end-of-sequence token or ``max_tokens`` are dropped. ``protocol`` and ``draft_model`` brought
        the draft, and ``exact`` says whether they keep the target's distribution. ``trimmed_tokens`` were drafted
        beside what the block had of the draft, and so were ``wrong_tokens``, which something else was committed in
        place of before they came. ``judged_tokens`` are mismatches that were judged.
        A draft that was ``from_lookup`` is no drafter's.
        """
        self.round_happened(outcome.round, RoundEvent.VERIFIED)
        self.unverified = ()
        accepted = [draft[i] for i in outcome.accepted_path]
        after = [] if outcome.next_token is None else [outcome.next_token]
        last = outcome.accepted_path[-1] if outcome.accepted_path else -1
        rejected = outcome.accepted_len < len(draft) if parents is None else last in parents
        proposed = TokenOrigin.LOOKUP if from_lookup else TokenOrigin.ACCEPTED
        origins = [TokenOrigin.CORRECTION] * len(forced) + [proposed] * len(accepted)
        for index in outcome.overrides:
            origins[len(forced) + index] = TokenOrigin.OVERRIDE
        origins += [TokenOrigin.CORRECTION if rejected else TokenOrigin.VERIFIER] * len(after)
        committed = self._take([*forced, *accepted, *after], origins, outcome)
        if outcome.deferred is not None and committed.finish is None:
            self.correction.defer(outcome.deferred, draft_model)
        elif self.correction.by is not None:
            self.correction.happened(CorrectionEvent.COMMITTED)
        if not (draft or trimmed_tokens or wrong_tokens) and exact and self.stats.rounds:
            self.stats = self.stats.round_without_draft()
            return committed
        self.stats += RoundStats(
            rounds=1,
            speculative_rounds=int(bool(draft or wrong_tokens)),
            drafted_tokens=len(draft) + trimmed_tokens + wrong_tokens,
            accepted_tokens=_accepted(committed.origins),
            cached_tokens=outcome.cached_tokens if self.stats.rounds == 0 else 0,
            inexact_rounds=int(not exact),
            protocols=((protocol, 1),) if (draft or wrong_tokens) and protocol is not None else (),
            trimmed_tokens=trimmed_tokens,
            judged_tokens=judged_tokens,
            overrides=self._overrides(committed.origins),
        )
        return committed

    def late(self, cause: ViolationCause | None) -> None:
        """A round was slower than promised, if there is a cause."""
        if cause is None:
            return
        queue, compute = cause is ViolationCause.QUEUE, cause is ViolationCause.COMPUTE
        self.stats += RoundStats(late_queue_rounds=int(queue), late_compute_rounds=int(compute))

    def exchanged(self, up_bits: int, down_bits: int) -> None:
        """Count a message from a drafter and one to it."""
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

    def swallowed(self, origins: Sequence[TokenOrigin]) -> None:
        """Take back from the statistics what a stop string has cut off behind the committed text."""
        self.stats += RoundStats(accepted_tokens=-_accepted(origins))
        if TokenOrigin.OVERRIDE in origins:
            kept = tuple(at for at in self.stats.overrides if at < len(self.output_ids) - len(origins))
            self.stats = replace(self.stats, overrides=kept)

    def _overrides(self, origins: Sequence[TokenOrigin]) -> tuple[int, ...]:
        """Where in the response the last tokens are that a judge let pass."""
        if TokenOrigin.OVERRIDE not in origins:
            return ()
        first = len(self.output_ids) - len(origins)
        return tuple(first + at for at, origin in enumerate(origins) if origin is TokenOrigin.OVERRIDE)

    def _until_end(self, token_ids: list[int]) -> tuple[list[int], FinishReason | None]:
        room = self.remaining_tokens
        for count, token_id in enumerate(token_ids[:room], start=1):
            if token_id in self._eos:
                return token_ids[:count], FinishReason.STOP
        if len(token_ids) >= room:
            return token_ids[:room], FinishReason.LENGTH
        return token_ids, None


def _accepted(origins: Sequence[TokenOrigin]) -> int:
    """Draft tokens among them."""
    return sum(origin in _DRAFTED for origin in origins)

"""Drafts of one response that are looked up in what it says already, or in what its tenant was told before.

How many tokens of what is found are drafted is what pays at the present price of a row (``selection.worth``), by how
often matches of that length came true (``lookup.matches``). What the verifier should do behind a round is told too:
where the next match is probably worth more than a round trip to the coordinator it does not go on by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from outrider.contracts.requests import ChoiceReport, GenerationRequest, PlanEstimate
from outrider.lookup.matches import Matches
from outrider.lookup.store import EarlierTexts
from outrider.lookup.suffixes import Found, Suffixes
from outrider.rounds.choice import report
from outrider.selection.arms import Arm
from outrider.selection.situation import ChoiceReason, RoundChoice, VerifierView
from outrider.selection.worth import Worth, worth_verifying

LOOKUP = "lookup"  # in the place of a protocol's name, for those who count
_LEAST_SURVIVAL = 0.1  # of the last token drafted, however cheap rows are
_OWN_WEIGHT, _WEIGHT = 1 / 12, 1 / 32  # of the newest round, in what looking up gains one response, and all
_FIRST_GAIN = 0.25  # tokens
_TRIP_WEIGHT, _BELIEVED = 1 / 8, 0.998  # of the newest round trip; what is kept of the others a round, as times change
_SURE = 1.5  # times its price that a round trip has to gain
_TOGETHER = 1.5  # blocks in a step, from which on others' steps go on while one waits


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A draft.

    Attributes:
        survivals: as ``VerifyTerms.survivals``.
        worth: of these tokens.
    """

    token_ids: tuple[int, ...]
    survivals: tuple[float, ...]
    worth: Worth


@dataclass(slots=True, eq=False)
class Experience:
    """What all responses of a verifier have learned, and said. Mutable.

    Attributes:
        gain_tokens: that looking up brought a round, whether something was found or not.
        trip_s: that a round took beside its pass, where the verifier waited to be asked for it.
    """

    matches: Matches = field(default_factory=Matches)
    earlier: EarlierTexts = field(default_factory=lambda: EarlierTexts(0))
    gain_tokens: float = _FIRST_GAIN
    trip_s: float = 0.0

    def gained(self, gain_tokens: float) -> None:
        """Once more, so many tokens."""
        self.gain_tokens += _WEIGHT * (gain_tokens - self.gain_tokens)
        self.trip_s *= _BELIEVED

    def waited(self, trip_s: float) -> None:
        """The verifier waited to be asked for a round, which took so long beside its pass."""
        self.trip_s += _TRIP_WEIGHT * (trip_s - self.trip_s)


class Lookup:
    """The text of one response, prompt included, and what its matches were worth. Mutable."""

    def __init__(self, request: GenerationRequest, experience: Experience, most_tokens: int) -> None:
        """Begin with its prompt; drafts have ``most_tokens`` at most."""
        self._suffixes, self._experience, self._most_tokens = Suffixes(), experience, most_tokens
        self._prompt_ids: Sequence[int] = request.prompt_ids  # until something is looked up for the first time
        self._tenant = request.tenant
        self._matches = Matches(experience.matches)
        self._known_tokens = 0  # of the response
        self._promised: tuple[int, Found] | None = None  # by the last match, of the response from there on
        self._open: tuple[int, tuple[int, ...]] | None = None  # likewise, what would be drafted, not all decided
        self._gain_tokens = experience.gain_tokens

    def draft(
        self, output_ids: Sequence[int], room: int, verifier: VerifierView, *, late_tokens: int = 0
    ) -> LookedUp | None:
        """What may come behind what is committed, and pays; None if there is nothing.

        Args:
            output_ids: all that is committed.
            room: tokens at most.
            verifier: as it is now.
            late_tokens: that will be committed before the draft is verified.
        """
        self._learn(output_ids)
        most = min(room, self._most_tokens)
        found = self._suffixes.find(most) or self._found_earlier(most)
        self._promised = None if found is None else (len(output_ids), found)
        worth, survivals = Worth(0), tuple[float, ...]()
        if found is not None:
            survivals = self._matches.survivals(found.matched, len(found.token_ids))
            survivals = tuple(survival for survival in survivals if survival >= _LEAST_SURVIVAL)
            certain = survivals[late_tokens - 1] if 0 < late_tokens <= len(survivals) else 1.0
            left = [survival / certain for survival in survivals[late_tokens:]]
            worth = worth_verifying(left, verifier, len(self._suffixes.token_ids)) if left else worth
        count = late_tokens + worth.tokens if worth.tokens else 0
        if self._open is None:
            self._open = len(output_ids), found.token_ids[:count] if found is not None else ()
        if found is None or not count:
            return None
        return LookedUp(found.token_ids[:count], survivals[:count], worth)

    def waits(self, verifier: VerifierView, found: LookedUp | None) -> bool:
        """Whether the round behind this one is worth asking for, by what may be found by then.

        While others' steps go on it is so only if theirs do not: all wait alike, by what all have found.
        """
        gain_tokens = self._experience.gain_tokens
        if verifier.batch_blocks < _TOGETHER:
            again = 0.0 if found is None else found.survivals[-1] * len(found.survivals)
            gain_tokens = max(self._gain_tokens, again)
        step_s = worth_verifying((), verifier, 1).step_s
        return gain_tokens * step_s > _SURE * max(verifier.fixed_s, self._experience.trip_s)

    def over(self, output_ids: Sequence[int]) -> None:
        """The response is complete: it may be looked through from now on."""
        self._experience.earlier.add(self._tenant, output_ids)

    def _learn(self, output_ids: Sequence[int]) -> None:
        if self._promised is not None:
            since, found = self._promised
            self._matches.came(found.matched, found.token_ids, output_ids[since:])
        self._count(output_ids)
        self._suffixes.extend(self._prompt_ids)
        self._prompt_ids = ()
        self._suffixes.extend(output_ids[self._known_tokens :])
        self._known_tokens = len(output_ids)

    def _count(self, output_ids: Sequence[int]) -> None:
        """What looking up brought, or would have: one round after another, as if what was worth it had been drafted."""
        if self._open is None:
            return
        since, drafted = self._open
        committed = output_ids[since : since + len(drafted)]
        right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(drafted, committed, strict=False)))
        if right == len(committed) < len(drafted) or len(output_ids) == since:
            return  # more may come
        self._gain_tokens += _OWN_WEIGHT * (right - self._gain_tokens)
        self._experience.gained(right)
        self._open = None

    def _found_earlier(self, most_tokens: int) -> Found | None:
        return self._experience.earlier.find(self._tenant, self._suffixes.token_ids, most_tokens)


def report_looked_up(choice: RoundChoice, found: LookedUp) -> ChoiceReport:
    """As a client sees it, beside what would have been done without it."""
    tokens, round_s = 1.0 + found.worth.gain_tokens, choice.chosen.alone_s + found.worth.longer_s
    estimate = PlanEstimate(LOOKUP, len(found.token_ids), (), round_s / tokens, tokens)
    return ChoiceReport(estimate, report(choice).chosen, ChoiceReason.LOOKED_UP)


def lookup_of(request: GenerationRequest, experience: Experience, most_tokens: int) -> Lookup | None:
    """Of a response in whose text something may be looked up; None if it wants none, or fixes what is drafted.

    Args:
        request: may say itself how many tokens.
        experience: of its verifier.
        most_tokens: by configuration; 0: none, unless the request asks for it.
    """
    if request.lookup is not None:
        most_tokens = request.lookup
    elif request.window == 0 or request.protocol is not None:
        most_tokens = 0
    return Lookup(request, experience, most_tokens) if most_tokens else None


def looks_up(request: GenerationRequest, arm: Arm) -> bool:
    """Whether it does under an arm; who asks for it does under any."""
    return arm.looks_up if request.lookup is None else request.lookup > 0

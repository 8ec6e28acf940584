"""State of the round under way: its plan, draft, block and times, and the counts of its draft tokens."""

from dataclasses import dataclass, field, replace

from outrider.contracts.autonomous_runs import overtaken, still_open, survivals_after
from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import common_prefix
from outrider.contracts.requests import ProtocolName
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import AcceptanceRule, Block, OwnDraft, Verified
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.events import Exchange
from outrider.rounds.generation import VerifiedDraft
from outrider.rounds.lookup.ngram_drafts import LOOKUP, NgramDraft
from outrider.rounds.timing import RoundTiming
from outrider.selection.modes import SpeculationMode


@dataclass(slots=True, eq=False)
class OpenRound:
    """One round from its plan to its commit. Mutable: filled step by step."""

    number: int
    began_at_s: float
    plan: DraftPlan | None = None  # None in a round without a drafter
    # to be committed, correction or bonus token included; from the plan until the draft arrives
    expected_tokens: float = 1.0
    allowed_s: float = 0.0  # that an exchange with the drafter may take beyond the usual deadline
    # of the draft's tokens, if it is a chain, as expected when it was ordered; see ``VerifyTerms``
    survivals: tuple[float, ...] = ()
    stays_whole: bool = False  # the draft must not be trimmed
    exchanges: list[Exchange] = field(default_factory=list)  # with the drafter, so far
    draft: Draft | None = None
    from_lookup: NgramDraft | None = None  # the draft, if the coordinator found it by prompt lookup
    own_draft: OwnDraft | None = None  # the draft, if the verifier made it itself by prompt lookup
    uncommitted: tuple[int, ...] = ()  # a correction that the device drew and that is committed with the block
    # committed before the block was verified: such a correction, where no log-probability is requested
    sent_tokens: int = 0
    block: Block | None = None  # with the verifier; of an autonomous run's round, the block before the run
    trimmed_tokens: int = 0  # drafted, and not verified
    equal_tokens: int = 0  # of these, those at the front that equal what was committed before the draft arrived
    # drafted from the first token on that differs from what was committed before the draft arrived
    wrong_tokens: int = 0
    beside_s: float = 0.0  # part of the exchange during which an autonomous run went on
    follows: bool = False  # it is a round of an autonomous run
    undecided: bool = False  # the device was asked for its hidden states
    resolved_by_device: bool = False  # the device's resolution is with the verifier
    unanswered: bool = False  # the device was lost before its resolution: its mismatches were rejected without a judge
    queue_s: float = 0.0  # in the queue, summed over all passes of the block and its resolution
    verify_s: float = 0.0  # in these passes

    @property
    def verified(self) -> Block:
        assert self.block is not None
        return self.block

    def came(self, draft: Draft) -> None:
        """Take the draft. Of a chain shorter than ordered, only the tokens that there are may be expected."""
        self.draft = draft
        if draft.parents is None and self.survivals:
            self.survivals = self.survivals[: len(draft.token_ids)]
            self.expected_tokens = 1.0 + sum(self.survivals)

    def only(self, draft_tokens: int) -> None:
        """Cut the block to the tokens that the batcher let the verifier test; the others count as trimmed."""
        drafted = len(self.verified.draft)
        self.block = trimmed(self.verified, draft_tokens)
        self.trimmed_tokens += drafted - len(self.block.draft)

    def overtaken(self, committed: tuple[int, ...]) -> None:
        """Remove from a late draft what earlier rounds have committed since its position, or since the last call.

        ``committed``: tokens from there on. If they differ from the draft's front, nothing of it is left to verify.
        """
        assert self.draft is not None
        if not committed:
            return
        draft = self.draft.token_ids if self.block is None else self.block.draft
        left = still_open(draft, committed)
        equal = common_prefix(draft, committed)
        # Equal tokens were drafted in vain but not wrongly: they count as trimmed, and as right for acceptance.
        self.equal_tokens += equal
        self.trimmed_tokens += equal
        self.wrong_tokens += len(draft) - equal - len(left)
        self.survivals = survivals_after(self.survivals, equal) if left else ()
        self.expected_tokens = 1.0 + sum(self.survivals)
        if self.block is None:
            self.draft = replace(self.draft, token_ids=left)
        else:
            self.block = overtaken(self.block, committed)

    def drafted_itself(self, own_draft: OwnDraft | None) -> None:
        """Take the draft that the verifier made itself in an autonomous run, if any."""
        if own_draft is not None:
            self.own_draft, self.block = own_draft, replace(self.verified, draft=own_draft.token_ids)

    @property
    def by_lookup(self) -> bool:
        """Whether its draft is by prompt lookup, by coordinator or verifier."""
        return self.from_lookup is not None or self.own_draft is not None

    @property
    def protocol(self) -> ProtocolName | None:
        return LOOKUP if self.by_lookup else None if self.plan is None else self.plan.protocol

    @property
    def draft_model(self) -> str | None:
        return self.exchanges[0].model if self.exchanges else None

    @property
    def device_tokens(self) -> int | None:
        """Number of tokens that a device drafted, verified or not; None if no device answered with a draft."""
        answers = (exchange.answer for exchange in self.exchanges)
        return next((len(answer.token_ids) for answer in answers if isinstance(answer, Draft)), None)

    def judged_tokens(self, outcome: Verified) -> int:
        """Number of mismatches on which a judge decided: those that passed, and the one that was rejected."""
        block = self.verified
        if self.unanswered or block.rule is not AcceptanceRule.SEMANTIC:
            return 0
        return len(outcome.overrides) + (outcome.accepted_len < len(block.draft))

    def is_exact(self, outcome: Verified, wire: WireFormat) -> bool:
        """Whether its tokens have the target's distribution; under a judge, whether no mismatch was let pass."""
        if self.plan is None:
            return True
        protocol = PROTOCOLS[self.plan.protocol]
        return not outcome.overrides if protocol.judged else protocol.lossless(wire)

    def verified_draft(self, outcome: Verified, wire: WireFormat) -> VerifiedDraft:
        """Return what the outcome is about, for the response's tokens and statistics."""
        return VerifiedDraft(
            token_ids=self.verified.draft,
            forced=self.uncommitted,
            parents=self.verified.parents,
            protocol=self.protocol,
            draft_model=self.draft_model,
            exact=self.is_exact(outcome, wire),
            trimmed_tokens=self.trimmed_tokens,
            wrong_tokens=self.wrong_tokens,
            judged_tokens=self.judged_tokens(outcome),
            from_lookup=self.by_lookup,
        )

    def timing(self, outcome: Verified, committed_tokens: int, now_s: float, mode: SpeculationMode) -> RoundTiming:
        """Return the round's timing. ``mode``: in use when it was begun."""
        drafted, exchanges = len(self.verified.draft) + self.trimmed_tokens + self.wrong_tokens, self.exchanges
        if not (exchanges or drafted):
            total_s = now_s - self.began_at_s
            spent = 0.0, 0.0, self.queue_s, self.verify_s, total_s
            return RoundTiming(
                None, 0, 0, committed_tokens, *spent, follows=self.follows, mode=mode, number=self.number
            )
        return RoundTiming(
            protocol=self.protocol if drafted else None,
            drafted_tokens=drafted,
            accepted_tokens=outcome.accepted_len,
            committed_tokens=committed_tokens,
            draft_s=sum(exchange.draft_s for exchange in exchanges),
            link_s=sum(exchange.link_s for exchange in exchanges),
            queue_s=self.queue_s,
            verify_s=self.verify_s,
            total_s=now_s - self.began_at_s,
            up_bits=sum(exchange.up_bits for exchange in exchanges),
            down_bits=sum(exchange.down_bits for exchange in exchanges),
            follows=self.follows,
            mode=mode,
            trimmed_tokens=self.trimmed_tokens,
            beside_s=self.beside_s,
            judged_tokens=self.judged_tokens(outcome),
            override_tokens=len(outcome.overrides),
            ordered_tokens=0 if self.plan is None else self.plan.nodes,
            number=self.number,
        )


class CurrentRound:
    """The round of a response that is in progress, if there is one. Mutable.

    Attributes:
        began_at_s: set before the round is opened, where a device or its draft is waited for first.
    """

    def __init__(self) -> None:
        self.round: OpenRound | None = None
        self.began_at_s: float | None = None

    def begin(self, now_s: float) -> float:
        """Return when the round began: now, unless it has begun before."""
        if self.began_at_s is None:
            self.began_at_s = now_s
        return self.began_at_s

    def answered(self, number: int) -> OpenRound:
        assert self.round is not None, "only what was asked is answered"
        assert self.round.number == number, "one round is in progress"
        return self.round

    def over(self) -> None:
        self.round = self.began_at_s = None

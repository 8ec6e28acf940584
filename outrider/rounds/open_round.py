"""The round in progress: what was planned, drafted and sent, and where its time went."""

from dataclasses import dataclass, field, replace

from outrider.contracts.autonomous_runs import overtaken, still_open, survivals_behind
from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import common_prefix
from outrider.contracts.requests import ProtocolName
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import AcceptanceRule, Block, OwnDraft, Verified
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.events import Exchange
from outrider.rounds.ngram_drafts import LOOKUP, NgramDraft
from outrider.rounds.timing import RoundTiming
from outrider.selection.modes import SpeculationMode


@dataclass(slots=True, eq=False)
class OpenRound:
    """Mutable; filled as the round goes on.

    Attributes:
        plan: None in a round without a drafter.
        from_lookup: the draft, if it was looked up here.
        own_draft: what the verifier drafted itself.
        expected_tokens: that it should commit, correction or bonus token included; by its plan until its draft is here.
        allowed_s: that an exchange with the drafter may take beyond the usual deadline.
        exchanges: with the drafter, so far.
        uncommitted: a correction the device drew, which is committed with the block.
        sent_tokens: committed before the block: such a correction where nothing more is to be said of it.
        undecided: the device is asked again.
        survivals: of a chain, as known when it was ordered, as far as it is there; see ``VerifyTerms``.
        stays_whole: nothing of the draft may be cut.
        block: that is with the verifier; of a round that follows by itself, the one it follows.
        trimmed_tokens: drafted, and not verified.
        equal_tokens: of these, at the front, what was committed before the draft came.
        wrong_tokens: drafted behind something that turned out wrong before the draft came.
        beside_s: of the exchange, while the verifier went on by itself.
        follows: the verifier makes it by itself.
        resolved_by_device: it has answered, and its answer is with the verifier.
        unanswered: it was asked again and lost: all it was asked about was rejected, and nobody judged that.
        queue_s: the block waited, likewise ``verify_s``; over all its passes, and its resolution's.
    """

    number: int
    began_at_s: float
    plan: DraftPlan | None = None
    expected_tokens: float = 1.0
    allowed_s: float = 0.0
    survivals: tuple[float, ...] = ()
    stays_whole: bool = False
    exchanges: list[Exchange] = field(default_factory=list)
    draft: Draft | None = None
    from_lookup: NgramDraft | None = None
    own_draft: OwnDraft | None = None
    uncommitted: tuple[int, ...] = ()
    sent_tokens: int = 0
    block: Block | None = None
    trimmed_tokens: int = 0
    equal_tokens: int = 0
    wrong_tokens: int = 0
    beside_s: float = 0.0
    follows: bool = False
    undecided: bool = False
    resolved_by_device: bool = False
    unanswered: bool = False
    queue_s: float = 0.0
    verify_s: float = 0.0

    @property
    def verified(self) -> Block:
        """The block, which is with the verifier."""
        assert self.block is not None
        return self.block

    def came(self, draft: Draft) -> None:
        """The draft is here. Of a chain that a device drafted less of no more is expected than what there is."""
        self.draft = draft
        if draft.parents is None and self.survivals:
            self.survivals = self.survivals[: len(draft.token_ids)]
            self.expected_tokens = 1.0 + sum(self.survivals)

    def only(self, draft_tokens: int) -> None:
        """So many tokens of the draft were verified: this is what the round has drafted, as far as verdicts go."""
        drafted = len(self.verified.draft)
        self.block = trimmed(self.verified, draft_tokens)
        self.trimmed_tokens += drafted - len(self.block.draft)

    def overtaken(self, committed: tuple[int, ...]) -> None:
        """So much was committed since it was ordered, or since it was last told, by rounds before this one."""
        assert self.draft is not None
        if not committed:
            return
        draft = self.draft.token_ids if self.block is None else self.block.draft
        left = still_open(draft, committed)
        equal = common_prefix(draft, committed)
        self.equal_tokens += equal
        self.trimmed_tokens += equal
        self.wrong_tokens += len(draft) - equal - len(left)
        self.survivals = survivals_behind(self.survivals, equal) if left else ()
        self.expected_tokens = 1.0 + sum(self.survivals)
        if self.block is None:
            self.draft = replace(self.draft, token_ids=left)
        else:
            self.block = overtaken(self.block, committed)

    def drafted_itself(self, own_draft: OwnDraft | None) -> None:
        """The verifier tells what it drafted in a round that it made by itself, if anything."""
        if own_draft is not None:
            self.own_draft, self.block = own_draft, replace(self.verified, draft=own_draft.token_ids)

    @property
    def by_lookup(self) -> bool:
        """Whether its draft was looked up, by whomever."""
        return self.from_lookup is not None or self.own_draft is not None

    @property
    def protocol(self) -> ProtocolName | None:
        """By which it was drafted."""
        return LOOKUP if self.by_lookup else None if self.plan is None else self.plan.protocol

    @property
    def draft_model(self) -> str | None:
        """The model of the device that drafted."""
        return self.exchanges[0].model if self.exchanges else None

    @property
    def device_tokens(self) -> int | None:
        """Tokens that a device has drafted, verified or not; None where none was asked."""
        answers = (exchange.answer for exchange in self.exchanges)
        return next((len(answer.token_ids) for answer in answers if isinstance(answer, Draft)), None)

    def judged_tokens(self, outcome: Verified) -> int:
        """How many of its mismatches were judged: those that passed, and the one that did not."""
        block = self.verified
        if self.unanswered or block.rule is not AcceptanceRule.SEMANTIC:
            return 0
        return len(outcome.overrides) + (outcome.accepted_len < len(block.draft))

    def is_exact(self, outcome: Verified, wire: WireFormat) -> bool:
        """Whether what it committed has the target's own law; of a judged draft, whether nothing was let pass."""
        if self.plan is None:
            return True
        protocol = PROTOCOLS[self.plan.protocol]
        return not outcome.overrides if protocol.judged else protocol.lossless(wire)

    def timing(self, outcome: Verified, committed_tokens: int, now_s: float, mode: SpeculationMode) -> RoundTiming:
        """Of the round, which was begun under a mode and ends now."""
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

"""A device's response and round under way."""

from dataclasses import dataclass, field, replace
from math import inf

from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.rounds.account import RoundAccount
from outrider.scheduling.policy import PendingVerification
from outrider.selection.modes import DRAFT, SpeculationMode
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.drafted_rounds import NO_DRAFT, SimDraft, Workload


def device_name(number: int) -> str:
    """A device's name to policies: its responses' one after another."""
    return f"device_{number:06d}"


def device_number(name: str) -> int:
    """The other way round."""
    return int(name.removeprefix("device_"))


@dataclass(slots=True, eq=False)
class SimDevice:
    """Mutable state of one device; times on the virtual clock."""

    account: DeviceAccount
    workload: Workload
    link: LinkEmulator | None
    exchange_s: float  # seconds of every exchange beyond link and steps
    span_s: tuple[float, float] = (0.0, inf)  # responses begin in it
    verification: PendingVerification | None = None  # of its block, while that waits or is verified
    round: int = 0  # counts over all its responses
    done: bool = True  # no response is under way
    draft: SimDraft = NO_DRAFT  # of the present round
    number: int = -1  # over all groups; by default its account's
    name: str = field(init=False)  # by which policies and records know it
    promised: RoundAccount = field(init=False)
    prompt_tokens: int = 0
    output_tokens: int = 0
    committed: int = 0
    computed_tokens: int = 0  # positions of the response ever computed and committed
    asked_at_s: float = 0.0
    first_at_s: float | None = None
    began_at_s: float = 0.0
    arrived_at_s: float = 0.0  # the round's block did
    queued_at_s: float = 0.0  # its block was, last
    queue_s: float = 0.0  # the round waited; likewise ``verify_s``; over all its passes
    verify_s: float = 0.0
    alone_rounds: int = 0  # that the verifier may yet make by itself
    ahead: int = 0  # tokens of such rounds that are not known yet
    follows: bool = False  # the round is one of them
    mode: SpeculationMode = DRAFT  # in use when the round was begun
    min_survival: float | None = None  # of its draft, where its cut was fixed when it was ordered

    def __post_init__(self) -> None:
        if self.number < 0:
            self.number = self.account.results.device
        self.name = device_name(self.number)

    def pending(self) -> PendingVerification:
        """Its block, as the scheduling policy sees it."""
        assert self.verification is not None
        return self.verification

    def ask(self, now_s: float, promised: RoundAccount) -> None:
        """Begin the response whose lengths are set, and the account of what it is promised."""
        self.done = False
        self.committed = self.computed_tokens = 0
        self.asked_at_s = now_s
        self.first_at_s = None
        self.promised = promised
        self.begin_round(NO_DRAFT, now_s)

    def back_at_s(self, draft: SimDraft, bits: tuple[int, int], now_s: float) -> float:
        """When the block is here that is ordered now, with messages of so many ``bits`` down and up."""
        arrives_at_s, link = now_s, self.link
        if link is not None:
            arrives_at_s = link.deliver(Direction.DOWN, bits[0], now_s)
        arrives_at_s += draft.draft_s + self.exchange_s
        return arrives_at_s if link is None else link.deliver(Direction.UP, bits[1], arrives_at_s)

    def begin_round(self, draft: SimDraft, now_s: float) -> None:
        """Begin a round of the present response."""
        self.round += 1
        self.draft = draft
        self.began_at_s = self.arrived_at_s = now_s
        self.queue_s = self.verify_s = 0.0
        self.alone_rounds = 0 if draft.nodes else self.workload.alone_rounds
        self.follows = False

    def cut(self, tokens: int) -> None:
        """Have so many tokens of its draft verified."""
        block, dropped = self.pending(), self.draft.nodes - tokens
        self.draft = self.draft.cut(tokens)
        self.verification = replace(
            block,
            cost=replace(block.cost, new_tokens=block.cost.new_tokens - dropped),
            expected_tokens=self.draft.expected_tokens,
        )
        self.workload.cut(tokens)

    @property
    def prefix_tokens(self) -> int:
        """Positions still to compute that go in chunks."""
        assert self.verification is not None
        return self.verification.prefix_tokens

    @property
    def goes_on(self) -> bool:
        """Whether the verifier makes the next round by itself."""
        return self.alone_rounds > 0 and self.committed + self.ahead < self.output_tokens

    @property
    def position(self) -> int:
        """Prompt and committed tokens, those included that are not known yet."""
        return self.prompt_tokens + self.committed + self.ahead

    @property
    def own_rows(self) -> int:
        """Positions of its block that are verified together: its draft and the token before it."""
        return self.draft.nodes + 1

    @property
    def total_tokens(self) -> int:
        """Positions its block spans, prefix included; in a first round the prompt alone."""
        return self.position + self.draft.nodes

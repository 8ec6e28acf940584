"""State of a simulated device: its response under way and the round within it."""

from dataclasses import dataclass, field, replace
from math import inf

from lab.simulation.drafted_rounds import NO_DRAFT, SimDraft, Workload
from lab.simulation.results import DeviceAccount
from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.scheduling.policy import PendingVerification


def device_name(number: int) -> str:
    """Return the name by which policies know the device, for all its responses."""
    return f"device_{number:06d}"


@dataclass(slots=True, eq=False)
class SimDevice:
    """Mutable state of one device. Times are on the virtual clock."""

    account: DeviceAccount
    workload: Workload
    link: LinkEmulator | None
    exchange_s: float  # seconds of every exchange beyond link and drafting steps
    span_s: tuple[float, float] = (0.0, inf)  # responses are requested within it
    verification: PendingVerification | None = None  # its block, while that waits or is verified
    round: int = 0  # counts over all its responses
    done: bool = True  # no response is under way
    draft: SimDraft = NO_DRAFT  # of the present round
    number: int = -1  # over all groups; by default that of its account
    name: str = field(init=False)  # for policies and records
    promised: PromiseTracker = field(init=False)
    prompt_tokens: int = 0
    output_tokens: int = 0
    committed: int = 0
    computed_tokens: int = 0  # positions of the response ever computed and committed
    asked_at_s: float = 0.0
    first_at_s: float | None = None
    began_at_s: float = 0.0
    arrived_at_s: float = 0.0  # when the round's block arrives
    queued_at_s: float = 0.0  # when its block was last queued
    queue_s: float = 0.0  # time the round waited between passes, summed; ``verify_s``: time in passes, summed
    verify_s: float = 0.0
    autonomous_rounds: int = 0  # rounds that the verifier may still make by itself (the rest of a grant)
    ahead: int = 0  # tokens of an autonomous run that the coordinator does not know yet
    follows: bool = False  # whether the round is part of an autonomous run
    min_survival: float | None = None  # the cut of its draft, where it is fixed when the draft is ordered (ratio rules)

    def __post_init__(self) -> None:
        if self.number < 0:
            self.number = self.account.results.device
        self.name = device_name(self.number)

    def pending(self) -> PendingVerification:
        assert self.verification is not None
        return self.verification

    def ask(self, now_s: float, promised: PromiseTracker) -> None:
        """Begin the response whose lengths are set, with a tracker of its promise."""
        self.done = False
        self.committed = self.computed_tokens = 0
        self.asked_at_s = now_s
        self.first_at_s = None
        self.promised = promised
        self.begin_round(NO_DRAFT, now_s)

    def back_at_s(self, draft: SimDraft, bits: tuple[int, int], now_s: float) -> float:
        """Return when a block ordered now arrives; ``bits`` go down and up. Advances the link's state."""
        arrives_at_s, link = now_s, self.link
        if link is not None:
            arrives_at_s = link.deliver(Direction.DOWN, bits[0], now_s)
        arrives_at_s += draft.draft_s + self.exchange_s
        return arrives_at_s if link is None else link.deliver(Direction.UP, bits[1], arrives_at_s)

    def begin_round(self, draft: SimDraft, now_s: float) -> None:
        """Begin the next round of the response; its block counts as arrived until ``arrived_at_s`` is set."""
        self.round += 1
        self.draft = draft
        self.began_at_s = self.arrived_at_s = now_s
        self.queue_s = self.verify_s = 0.0
        self.autonomous_rounds = 0 if draft.nodes else self.workload.autonomous_rounds
        self.follows = False

    def cut(self, tokens: int) -> None:
        block, dropped = self.pending(), self.draft.nodes - tokens
        self.draft = self.draft.cut(tokens)
        self.verification = replace(
            block,
            cost=replace(block.cost, new_tokens=block.cost.new_tokens - dropped),
            expected_tokens=self.draft.expected_tokens,
        )

    @property
    def prefill_tokens(self) -> int:
        """Positions of the prefix that are still to be computed, in chunks."""
        assert self.verification is not None
        return self.verification.prefill_tokens

    @property
    def goes_on(self) -> bool:
        """Whether the verifier makes the next round by itself: its grant lasts and the response is not complete."""
        return self.autonomous_rounds > 0 and self.committed + self.ahead < self.output_tokens

    @property
    def position(self) -> int:
        """Prompt and committed tokens, including those the coordinator does not know yet."""
        return self.prompt_tokens + self.committed + self.ahead

    @property
    def own_rows(self) -> int:
        """Positions of its block that are verified together: its draft and the token before it."""
        return self.draft.nodes + 1

    @property
    def total_tokens(self) -> int:
        """Positions its block spans, prefix included; in a first round the prompt alone."""
        return self.position + self.draft.nodes

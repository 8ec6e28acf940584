"""A conversation: its turns, the response under way, and who drafts for it."""

from array import array
from math import log
from typing import TYPE_CHECKING

from outrider.rounds.rules import RunGrant
from outrider.routing.prefix_index import BLOCK_TOKENS
from outrider.selection.situation import SpeedPromise
from outrider.simulation.agenda import Agenda
from outrider.simulation.chance import hashed, uniforms
from outrider.simulation.device import SimDevice
from outrider.simulation.device_account import DeviceAccount
from outrider.simulation.drafted_rounds import LENGTHS, NO_DRAFT, TOKENS, SimDraft, SimResponse, accepted_of
from outrider.simulation.fleet.drafters import DrafterPool, SimDrafter, exponential
from outrider.simulation.fleet.scenario import Traffic

if TYPE_CHECKING:
    from outrider.simulation.fleet.sim_replica import SimReplica

_SYSTEM, _THINK, _TURNS, _MESSAGE = 18, 19, 20, 21  # purposes of chance
_WITH_DRAFTER = RunGrant().with_drafter
_DIGEST_BITS = 24  # blocks of a conversation, at most 2**24


class DraftedTurns:
    """What is drafted for one conversation: a ``Workload`` that depends on the device it is leased."""

    __slots__ = ("_agenda", "conversation", "draws")

    follows_tuner = False

    def __init__(self, agenda: Agenda) -> None:
        """Nothing is drawn yet."""
        self._agenda = agenda
        self.conversation: Conversation
        self.draws = array("d")

    @property
    def alone_rounds(self) -> int:
        """That the verifier may make by itself: some, as long as nobody is ready to draft."""
        return 0 if self.conversation.drafted_at(self._agenda.now_s) else _WITH_DRAFTER

    def stays_alone(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002 (a choice's)
        """Until a device is ready."""
        return not self.conversation.drafted_at(self._agenda.now_s)

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002 (a choice's)
        """The whole window of the device, cut to what may still be committed."""
        conversation = self.conversation
        if conversation.drafter is None:
            conversation.lease(self._agenda.now_s)
        drafter = conversation.drafter
        if drafter is None or self._agenda.now_s < conversation.ready_at_s:
            return NO_DRAFT
        tables = drafter.tables
        depth = min(tables.window, remaining_tokens - 1)
        if depth == 0:
            return NO_DRAFT
        drafts = tables.drafts
        draft_s = drafts.shape.steps[depth - 1] * drafter.step_s
        return SimDraft(
            depth,
            depth,
            accepted_of(self.draws, committed_tokens, drafter.passes, depth),
            draft_s,
            drafts.expected[depth],
            drafts.bits[depth],
            drafts.survivals[:depth],
            draft_s + drafts.link_s[depth],
            drafts.cut_as_ordered,
        )

    def cut(self, tokens: int) -> None:
        """Nothing is learned from drafts."""

    def begin(self) -> SimResponse | None:
        """Turns are begun by the conversation."""
        raise NotImplementedError


class Conversation(SimDevice):
    """One user's, or one that came by itself; it is the *device* of its lane. A user's next one is the same object."""

    __slots__ = (
        "_pool",
        "attempts",
        "begun",
        "counted",
        "drafter",
        "drafts",
        "identity",
        "kind",
        "ready_at_s",
        "replica",
        "replicas",
        "system",
        "traffic",
        "turn",
        "turns",
    )

    def __init__(
        self,
        traffic: Traffic,
        kind: int,
        number: int,
        account: DeviceAccount,
        agenda: Agenda,
        pool: DrafterPool,
    ) -> None:
        """Not begun; ``traffic`` is the how many-eth ``kind`` says."""
        self.drafts = DraftedTurns(agenda)
        super().__init__(account, self.drafts, None, 0.0, number=number)
        self.drafts.conversation = self
        self._pool, self.traffic, self.kind = pool, traffic, kind
        self.drafter: SimDrafter | None = None
        self.ready_at_s = 0.0
        self.replica: SimReplica | None = None  # where its response is asked for
        self.replicas: set[SimReplica] = set()  # where something of it may be kept
        self.identity = self.turn = self.turns = 0
        self.begun = 0  # conversations of the same user, this one included
        self.attempts = 0  # of the present request
        self.counted = False  # whether the response was asked for after the warm-up
        self.system: int | None = None

    def begin(self, seed: int, identity: int) -> float:
        """Begin a conversation, the how many-eth ``identity`` says; after how long its first request comes."""
        traffic, number = self.traffic, self.number
        self.identity, self.turn, self.begun = identity, 0, self.begun + 1
        self.turns = traffic.turns.at(hashed(seed, _TURNS, number, self.begun))
        prompts = traffic.system_prompts
        if prompts is not None:  # as often as 1 / rank: the rank is uniform in its logarithm
            self.system = min(int((prompts.count + 1) ** hashed(seed, _SYSTEM, number, self.begun)), prompts.count) - 1
        return self._next_turn(seed, self.system_tokens)

    def go_on(self, seed: int) -> float | None:
        """The next turn; after how long its request comes, or None if the conversation is over."""
        self.turn += 1
        if self.turn >= self.turns or self.traffic.message is None:
            return None
        self._next_turn(seed, self.prompt_tokens + self.committed)
        if self.prompt_tokens + self.output_tokens > self.traffic.max_context_tokens:
            return None
        return exponential(hashed(seed, _THINK, self.number, self._nth), self.traffic.think_s)

    @property
    def system_tokens(self) -> int:
        return 0 if self.traffic.system_prompts is None else self.traffic.system_prompts.tokens

    @property
    def _nth(self) -> int:
        """Response of the user, from 1 on."""
        return self.begun if self.turns == 1 else (self.begun << 16) + self.turn

    def _next_turn(self, seed: int, before_tokens: int) -> float:
        """Draw lengths, and every position's chance; the pause that a first turn has before it."""
        traffic = self.traffic
        prompt, output, pause = uniforms(seed, self.number, self._nth, LENGTHS, 3)
        said = traffic.prompt if self.turn == 0 or traffic.message is None else traffic.message
        self.prompt_tokens = before_tokens + said.at(prompt)
        self.output_tokens = traffic.output.at(output)
        self.drafts.draws = array("d", uniforms(seed, self.number, self._nth, TOKENS, self.output_tokens))
        self.attempts, self.committed = 0, 0
        return -traffic.pause_s * log(1.0 - pause)

    def digests(self, block_tokens: int = BLOCK_TOKENS) -> list[int]:
        """Of the full leading blocks of what is sent to be computed: those of a system prompt are everybody's."""
        blocks = (self.prompt_tokens + (0 if self.done else self.committed)) // block_tokens
        if self.system is None:
            own = self.identity << _DIGEST_BITS
            return list(range(own, own + blocks))
        shared, own = self.system_tokens // block_tokens, self.identity << _DIGEST_BITS
        common = -1 - (self.system << _DIGEST_BITS)
        return [*range(common, common - shared, -1), *range(own + shared, own + blocks)]

    def drafted_at(self, now_s: float) -> bool:
        """Whether a device is ready to draft."""
        return self.drafter is not None and now_s >= self.ready_at_s

    def lease(self, now_s: float) -> None:
        """Have a device draft, if there is one with room: it computes the prompt first."""
        if self.drafter is None:
            self.drafter = self._pool.lease(self)
            if self.drafter is not None:
                self.ready_at_s = self.drafter.prefill(self.position, now_s)

    def release(self) -> None:
        """Have none any more."""
        if self.drafter is not None:
            self._pool.release(self.drafter, self)
            self.drafter = None

    def back_at_s(self, draft: SimDraft, bits: tuple[int, int], now_s: float) -> float:
        """As above, by its device."""
        assert self.drafter is not None
        return self.drafter.back_at_s(bits, draft.draft_s, now_s)

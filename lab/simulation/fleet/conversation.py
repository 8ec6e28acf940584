"""Simulate a conversation: its turns, its response under way, and the drafter leased for it."""

from array import array
from math import log

from lab.simulation.agenda import Agenda
from lab.simulation.chance import hashed, uniforms
from lab.simulation.device import SimDevice
from lab.simulation.drafted_rounds import LENGTHS, NO_DRAFT, TOKENS, SimDraft, SimResponse, accepted_of
from lab.simulation.fleet.drafters import DrafterPool, SimDrafter, exponential
from lab.simulation.fleet.scenario import Traffic
from lab.simulation.results import DeviceAccount
from outrider.rounds.rules import RunGrant
from outrider.routing.prefix_index import BLOCK_TOKENS
from outrider.selection.situation import SpeedPromise

_SYSTEM, _THINK, _TURNS, _MESSAGE = 18, 19, 20, 21  # purposes of chance
_WITH_DRAFTER = RunGrant().with_drafter
_DIGEST_BITS = 24  # blocks of a conversation, at most 2**24


class DraftedTurns:
    """The ``Workload`` of one conversation: what it drafts depends on the drafter that it has leased."""

    __slots__ = ("_agenda", "conversation", "draws")

    def __init__(self, agenda: Agenda) -> None:
        """Set ``conversation`` before use; ``draws`` are drawn anew for each response."""
        self._agenda = agenda
        self.conversation: Conversation
        self.draws = array("d")

    @property
    def autonomous_rounds(self) -> int:
        """Rounds that the verifier may make by itself: none once a drafter is ready."""
        return 0 if self.conversation.drafted_at(self._agenda.now_s) else _WITH_DRAFTER

    def stays_autonomous(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002 (a choice's)
        return not self.conversation.drafted_at(self._agenda.now_s)

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002 (a choice's)
        """Draft the drafter's whole window, cut to what may still be committed; lease a drafter first if need be."""
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
        accepted = accepted_of(self.draws, committed_tokens, drafter.passes, depth)
        return tables.drafts.draft(depth, accepted, drafter.step_s)

    def begin(self) -> SimResponse | None:
        """Refuse: the conversation begins its turns itself."""
        raise NotImplementedError


class Conversation(SimDevice):
    """A conversation of a user, or one that arrived by itself. A user's next conversation is the same object.

    To the simulated verifier it is the ``SimDevice`` whose responses are made.
    """

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
        """Create a conversation that has not begun; ``kind`` is the index of ``traffic`` in the scenario."""
        self.drafts = DraftedTurns(agenda)
        super().__init__(account, self.drafts, None, 0.0, number=number)
        self.drafts.conversation = self
        self._pool, self.traffic, self.kind = pool, traffic, kind
        self.drafter: SimDrafter | None = None
        self.ready_at_s = 0.0
        self.replica: int | None = None  # number of the one where its response is requested
        self.replicas: set[int] = set()  # numbers of all that may hold KV of it
        self.identity = self.turn = self.turns = 0
        self.begun = 0  # conversations of the same user so far, this one included
        self.attempts = 0  # of the present request
        self.counted = False  # whether the response was requested after the warm-up
        self.system: int | None = None

    def begin(self, seed: int, identity: int) -> float:
        """Begin the conversation number ``identity`` of the run; return seconds until its first request."""
        traffic, number = self.traffic, self.number
        self.identity, self.turn, self.begun = identity, 0, self.begun + 1
        self.turns = traffic.turns.at(hashed(seed, _TURNS, number, self.begun))
        prompts = traffic.system_prompts
        if prompts is not None:  # probability falls as 1 / rank (Zipf), so the logarithm of the rank is uniform
            self.system = min(int((prompts.count + 1) ** hashed(seed, _SYSTEM, number, self.begun)), prompts.count) - 1
        return self._next_turn(seed, self.system_tokens)

    def go_on(self, seed: int) -> float | None:
        """Begin the next turn; return seconds until its request, or None if the conversation is over."""
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
        """Key of chance of the present response, different for each response of the user."""
        return self.begun if self.turns == 1 else (self.begun << 16) + self.turn

    def _next_turn(self, seed: int, before_tokens: int) -> float:
        """Draw lengths and the acceptance draw of every position; return the pause before it, if it is a first turn."""
        traffic = self.traffic
        prompt, output, pause = uniforms(seed, self.number, self._nth, LENGTHS, 3)
        said = traffic.prompt if self.turn == 0 or traffic.message is None else traffic.message
        self.prompt_tokens = before_tokens + said.at(prompt)
        self.output_tokens = traffic.output.at(output)
        self.drafts.draws = array("d", uniforms(seed, self.number, self._nth, TOKENS, self.output_tokens))
        self.attempts, self.committed = 0, 0
        return -traffic.pause_s * log(1.0 - pause)

    def digests(self, block_tokens: int = BLOCK_TOKENS) -> list[int]:
        """Return digests of the full leading blocks of prompt and committed tokens, as the router sees them.

        Blocks of a system prompt have the same digests in all conversations; they are negative, own ones positive.
        """
        blocks = (self.prompt_tokens + (0 if self.done else self.committed)) // block_tokens
        if self.system is None:
            own = self.identity << _DIGEST_BITS
            return list(range(own, own + blocks))
        shared, own = self.system_tokens // block_tokens, self.identity << _DIGEST_BITS
        common = -1 - (self.system << _DIGEST_BITS)
        return [*range(common, common - shared, -1), *range(own + shared, own + blocks)]

    def drafted_at(self, now_s: float) -> bool:
        """Return whether a drafter is leased and has computed the prompt."""
        return self.drafter is not None and now_s >= self.ready_at_s

    def lease(self, now_s: float) -> None:
        """Lease a drafter if one has a slot; it drafts once it has computed the prompt."""
        if self.drafter is None:
            self.drafter = self._pool.lease(self.number)
            if self.drafter is not None:
                self.ready_at_s = self.drafter.prefill(self.position, now_s)

    def release(self) -> None:
        if self.drafter is not None:
            self._pool.release(self.drafter, self.number)
            self.drafter = None

    def back_at_s(self, draft: SimDraft, bits: tuple[int, int], now_s: float) -> float:
        """Return when a block ordered now is back from the leased drafter; ``bits`` go down and up."""
        assert self.drafter is not None
        return self.drafter.back_at_s(bits, draft.draft_s, now_s)

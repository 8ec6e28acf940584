"""Edge devices that exist in time only: real messages over emulated links, recorded drafts, paced steps.

Each device serves one user over its own link. It takes as long as a device of the given speed, but no CPU time of the
machine: the arrival time of an answer is computed, and awaited once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from actors.messages import DrafterId
from actors.waiting import within
from lab.bench.harness.recorded_drafts import RecordedResponse
from outrider.contracts.drafting import Draft, DraftRequest, DraftTerms
from outrider.contracts.errors import ChecksumError, DrafterLostError
from outrider.contracts.link import Direction
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.link.emulator import LinkEmulator
from outrider.link.trace import LinkSource
from outrider.session.session import DrafterSession, payload_bits
from outrider.versions import VERSIONS
from outrider.wire.bits import id_bits
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer
from serve_app.coordination.drafting.link_services import DrafterPort

GROUP = "emulated"  # name of these devices' drafter group


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    step_s: float  # per draft token
    prefill_token_s: float  # per prefix token that is new to it
    link: LinkSource  # to the coordinator
    seed: int  # of the link's losses and jitter


@dataclass(slots=True, eq=False)
class _Held:
    session: DrafterSession
    prompt_tokens: int
    response: RecordedResponse
    known_tokens: int = 0  # whose KV would have been computed


class EmulatedDevice:
    """``actors.coordinator.transport.DrafterTransport`` to a device in this process.

    Attributes:
        strays: drafts requested behind other tokens than the recorded ones. They are answered from the record and will
            be rejected: a draft never changes the response.
    """

    message_version = VERSIONS.messages.newest

    def __init__(
        self, spec: DeviceSpec, responses: Mapping[tuple[int, ...], RecordedResponse], clock: Callable[[], float]
    ) -> None:
        """``responses`` are found by prompt; ``clock`` is the event loop's, in seconds."""
        self._spec = spec
        self._responses = responses
        self._clock, self._began_at_s = clock, clock()
        self._link = LinkEmulator(spec.link, spec.seed)
        # Probes use another link like this one: so rounds alone use this one, and can be replayed.
        self._probe_link = LinkEmulator(spec.link, spec.seed + 1)
        self._held: dict[GenerationId, _Held] = {}
        self.strays = 0

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        """Hold the response recorded for this prompt, once its tokens have crossed the link."""
        token_ids = (*request.prompt_ids, *request.output_ids)
        self._held[request.generation] = _Held(
            session=DrafterSession(terms.wire, request.generation, token_ids),
            prompt_tokens=len(request.prompt_ids),
            response=self._responses[request.prompt_ids],
        )
        bits = len(token_ids) * id_bits(terms.wire.vocab_size)
        await self._until(self._link.deliver(Direction.DOWN, bits, self._now_s()), deadline_s)

    async def exchange(
        self,
        generation: GenerationId,
        order: bytes,
        deadline_s: float,
        most_bytes: int = MAX_MESSAGE_BYTES,  # noqa: ARG002 (interface)
    ) -> Answer:
        """Answer from the record, no earlier than link and device could."""
        arrives_at_s = self._link.deliver(Direction.DOWN, payload_bits(order), self._now_s())
        data, work_s = self._answered(generation, order)
        answered_at_s = self._link.deliver(Direction.UP, payload_bits(data), arrives_at_s + work_s)
        await self._until(answered_at_s, deadline_s)
        return Answer(data, work_s)

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        """Return zeros, over the probes' link."""
        arrives_at_s = self._probe_link.deliver(Direction.DOWN, payload_bits(sent), self._now_s())
        answered_at_s = self._probe_link.deliver(Direction.UP, reply_bytes * 8, arrives_at_s)
        await self._until(answered_at_s, deadline_s)
        return Answer(bytes(reply_bytes), 0.0)

    def close(self, generation: GenerationId) -> None:
        self._held.pop(generation, None)

    def _answered(self, generation: GenerationId, order: bytes) -> tuple[bytes, float]:
        """The answer's bytes, and the seconds that a device of this speed takes for it."""
        held = self._held.get(generation)
        if held is None:
            return b"", 0.0
        repeated = held.session.answer_at_once(order)
        if repeated is not None:
            return repeated, 0.0
        try:
            request = held.session.decode_order(order)
        except ChecksumError:
            return b"", 0.0
        draft = self._draft(held, request)
        return held.session.encode_answer(draft), self._work_s(held, request, draft)

    def _draft(self, held: _Held, request: DraftRequest) -> Draft:
        position = request.feedback_position + len(request.feedback)
        committed = position - held.prompt_tokens
        known = request.feedback_position - held.prompt_tokens
        self.strays += held.response.output_ids[known:committed] != request.feedback
        tokens = held.response.draft(committed, request.plan.window)
        return Draft(request.generation, request.round, position, tokens)

    def _work_s(self, held: _Held, request: DraftRequest, draft: Draft) -> float:
        """A step per draft token; the first also processes the last round's correction. Other new tokens are prefill.

        At first these are the whole prefix.
        """
        lacking = draft.position - held.known_tokens
        held.known_tokens = draft.position + len(draft.token_ids)
        read = max(0, lacking - (request.plan.window > 0))
        return self._spec.step_s * len(draft.token_ids) + self._spec.prefill_token_s * read

    def _now_s(self) -> float:
        return self._clock() - self._began_at_s

    async def _until(self, at_s: float, deadline_s: float) -> None:
        try:
            await within(deadline_s, asyncio.sleep(at_s - self._now_s()))
        except TimeoutError:
            raise DrafterLostError(
                f"an emulated device needs to answer within {deadline_s:g} s and cannot; give it a faster link or step"
            ) from None


class EmulatedFleet:
    """``FleetPort`` over emulated devices: device i is leased to user i's generations.

    Attributes:
        faults: reported by coordinators.
    """

    def __init__(self, devices: Sequence[EmulatedDevice]) -> None:
        self._devices = devices
        self.faults: list[str] = []

    async def lease(
        self,
        generation: GenerationId,
        exclude: frozenset[DrafterId],
        groups: frozenset[str] | None,  # noqa: ARG002 (there is one)
    ) -> DrafterPort | None:
        drafter = DrafterId(GROUP, user_of(generation))
        return None if drafter in exclude else DrafterPort(drafter, self._devices[drafter.index])

    def release(self, generation: GenerationId) -> None:
        """Do nothing: a device always belongs to its user."""

    def report_lost(self, drafter: DrafterId) -> None:
        """Record it: no device should be lost here."""
        self.faults.append(f"{drafter.actor_name} was lost")

    def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:  # noqa: ARG002 (no device is replaced)
        self.faults.append(f"{drafter.actor_name}: {fault}")


def generation_name(cell: str, user: int, number: int) -> GenerationId:
    """Name of a user's response ``number``, unique over all cells of a run."""
    return f"{user}/{number}/{cell}"


def user_of(generation: GenerationId) -> int:
    return int(generation.split("/", 1)[0])

"""What is asked of a drafter over a stream, as tests of devices and of transports ask it."""

from actors.coordinator.drafter_replies import checked_answer, checked_probe
from actors.coordinator.socket_transport import SocketDrafterTransport
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, Reply, answer_bytes


class SocketClient(SocketDrafterTransport):
    """``DrafterTransport`` over a stream."""

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        await self.called("open", request, terms, deadline_s=deadline_s)

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        most_bytes = answer_bytes(most_bytes)
        reply = await self.called("exchange", generation, order, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_answer(self._name, reply)

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        most_bytes = answer_bytes(reply_bytes)
        reply = await self.called("probe", sent, reply_bytes, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_probe(self._name, reply, reply_bytes)

    async def prove(self, deadline_s: float) -> None:
        await self.called("prove", deadline_s=deadline_s)

    async def held(self, deadline_s: float, most_bytes: int) -> Reply:
        return await self.called("held", deadline_s=deadline_s, most_bytes=most_bytes)

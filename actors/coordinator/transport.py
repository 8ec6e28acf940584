"""Carries messages to a drafter: an interface that hides the transport, and its implementation by Ray calls.

Each exchange is one call with a deadline. Errors of Ray are translated to those of ``outrider.contracts.errors``.
"""

from typing import Any, Protocol

from ray.exceptions import RayActorError, RayError

from actors.coordinator.drafter_replies import broken, checked_answer, checked_probe, silent
from actors.plain_handle import PlainHandle
from actors.waiting import within
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import (
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
)
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, Reply, answer_bytes


class DrafterTransport(Protocol):
    """One drafter, as the round loop sees it."""

    @property
    def message_version(self) -> int:
        """Version of orders and blocks that is agreed on with the drafter."""
        ...

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        """Open a generation at the drafter.

        Raises:
            DrafterLostError: no answer within ``deadline_s`` seconds.
            ContextTooLongError: the generation does not fit the drafter.
        """
        ...

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        """Send one round's order and return the answer, of at most ``most_bytes``.

        Raises:
            DrafterSilentError: no answer within ``deadline_s`` seconds, or it was lost on its way.
            DrafterLostError: the drafter is gone.
            DrafterBrokenError: the answer has another form or size, or the drafter failed.
            DraftingFailedError: the drafter fails at this generation.
        """
        ...

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        """Send bytes and have so many sent back, to measure the link.

        Raises:
            DrafterLostError: no answer within ``deadline_s`` seconds.
            DrafterBrokenError: the answer has another form.
        """
        ...

    def close(self, generation: GenerationId) -> None:
        """Have the drafter drop a generation, without waiting."""
        ...


class RayDrafterTransport:
    def __init__(self, name: str, handle: PlainHandle) -> None:
        self._name = name
        self._handle = handle
        # The coordinator's own: fleets of another release, whose drafters these are, may know others.
        common = VERSIONS.messages.common(handle.messages)
        self.message_version, self._is_understood = common or VERSIONS.messages.newest, common is not None

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        """The actor loads the generation's tokens; returns once it holds them."""
        if not self._is_understood:
            raise DrafterLostError(
                f"drafter {self._name} needs messages of version {VERSIONS.messages}, found {self._handle.messages}"
            )
        await self._replied(self._handle.open.remote(request, terms), deadline_s)

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        call = self._handle.exchange.at_most(answer_bytes(most_bytes))
        return checked_answer(self._name, await self._replied(call.remote(generation, order), deadline_s))

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        call = self._handle.probe.at_most(answer_bytes(reply_bytes))
        return checked_probe(self._name, await self._replied(call.remote(sent, reply_bytes), deadline_s), reply_bytes)

    def close(self, generation: GenerationId) -> None:
        """Send the closing without waiting; if it is lost, the fleet has the drafter drop the generation later."""
        self._handle.close.remote(generation)

    async def _replied(self, reference: Any, deadline_s: float) -> Reply:
        try:
            reply: Reply = await within(deadline_s, reference)
        except TimeoutError:
            raise silent(self._name, deadline_s) from None
        except RayActorError as error:
            raise DrafterLostError(f"drafter {self._name} is gone: {type(error).__name__}") from error
        except DrafterBrokenError as error:
            raise broken(self._name, error) from error
        except RayError as error:
            raise DrafterSilentError(f"drafter {self._name}'s answer is lost: {type(error).__name__}") from error
        return reply

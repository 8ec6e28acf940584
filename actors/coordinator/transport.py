"""Carries messages to a drafter: an interface that hides the transport, and its implementation for drafter actors.

Each exchange is one call with a deadline. Errors of Ray are translated to those of ``outrider.contracts.errors``.
"""

from contextlib import suppress
from typing import Any, Protocol

from ray.exceptions import RayActorError, RayError

from actors.coordinator.drafter_replies import broken, checked_answer, checked_probe, silent
from actors.coordinator.drafter_streams import DrafterStream
from actors.coordinator.socket_transport import SocketDrafterTransport, StreamCutError
from actors.plain_handle import PlainHandle
from actors.waiting import loop_now_s, within
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import (
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    MessageError,
)
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, Reply, answer_bytes, reply_bytes


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
    """``DrafterTransport`` to an actor: over its stream while that is open, else by Ray calls."""

    def __init__(self, name: str, handle: PlainHandle, stream: DrafterStream | None = None) -> None:
        self._name, self._handle, self._stream = name, handle, stream
        # The coordinator's own: fleets of another release, whose drafters these are, may know others.
        common = VERSIONS.messages.common(handle.messages)
        self.message_version, self._is_understood = common or VERSIONS.messages.newest, common is not None

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        """The actor loads the generation's tokens; returns once it holds them."""
        if not self._is_understood:
            raise DrafterLostError(
                f"drafter {self._name} needs messages of version {VERSIONS.messages}, found {self._handle.messages}"
            )
        await self._called("open", request, terms, deadline_s=deadline_s, most_bytes=reply_bytes("open"))

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        most_bytes = answer_bytes(most_bytes)
        reply = await self._called("exchange", generation, order, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_answer(self._name, reply)

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        most_bytes = answer_bytes(reply_bytes)
        reply = await self._called("probe", sent, reply_bytes, deadline_s=deadline_s, most_bytes=most_bytes)
        return checked_probe(self._name, reply, reply_bytes)

    def close(self, generation: GenerationId) -> None:
        """Send the closing without waiting; if it is lost, the fleet has the drafter drop the generation later."""
        if (calls := self._calls) is None:
            self._handle.close.remote(generation)
        else:
            calls.close(generation)

    @property
    def _calls(self) -> SocketDrafterTransport | None:
        return None if self._stream is None else self._stream.reach()

    async def _called(self, method: str, *arguments: Any, deadline_s: float, most_bytes: int) -> Reply:
        until_s = loop_now_s() + deadline_s
        if (calls := self._calls) is not None:
            # Over Ray if the call is too large for the stream, or that was cut off as another call was not answered: a
            # drafter answers a repeated call as before.
            with suppress(MessageError, StreamCutError):
                return await calls.called(method, *arguments, deadline_s=deadline_s, most_bytes=most_bytes)
        call = getattr(self._handle, method).at_most(most_bytes)
        return await self._replied(call.remote(*arguments), max(0.0, until_s - loop_now_s()), deadline_s)

    async def _replied(self, reference: Any, left_s: float, deadline_s: float) -> Reply:
        try:
            reply: Reply = await within(left_s, reference)
        except TimeoutError:
            raise silent(self._name, deadline_s) from None
        except RayActorError as error:
            raise DrafterLostError(f"drafter {self._name} is gone: {type(error).__name__}") from error
        except DrafterBrokenError as error:
            raise broken(self._name, error) from error
        except RayError as error:
            raise DrafterSilentError(f"drafter {self._name}'s answer is lost: {type(error).__name__}") from error
        return reply

"""How messages reach a drafter. The round loop knows this interface, not what carries it.

Today a Ray call per exchange; every call has a deadline, and whatever goes wrong on the way is one error.
"""

from typing import Any, Protocol

from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError

from actors.deadlines import within
from actors.messages import DraftReply
from outrider.engines.base import DraftRequest, OpenGeneration
from outrider.errors import DrafterBrokenError, DrafterLostError, OutriderError
from outrider.types import GenerationId


class DrafterTransport(Protocol):
    """One drafter, as the round loop sees it."""

    async def open(self, request: OpenGeneration, deadline_s: float) -> None:
        """Have it hold a generation.

        Raises:
            DrafterLostError: no answer within ``deadline_s`` seconds.
            ContextTooLongError: the generation does not fit it.
        """
        ...

    async def draft(self, request: DraftRequest, deadline_s: float) -> DraftReply:
        """Exchange one round.

        Raises:
            DrafterLostError: no answer within ``deadline_s`` seconds.
            DrafterBrokenError: an answer of another form.
        """
        ...

    def close(self, generation: GenerationId) -> None:
        """Have it forget a generation; nobody waits for that."""
        ...


class RayDrafterTransport:
    """A drafter actor called through Ray."""

    def __init__(self, name: str, handle: "ActorHandle[Any]") -> None:
        """``name`` is used in errors only."""
        self._name = name
        self._handle = handle

    async def open(self, request: OpenGeneration, deadline_s: float) -> None:
        """See ``DrafterTransport.open``."""
        await self._answer(self._handle.open.remote(request), deadline_s)

    async def draft(self, request: DraftRequest, deadline_s: float) -> DraftReply:
        """See ``DrafterTransport.draft``."""
        reply = await self._answer(self._handle.draft.remote(request), deadline_s)
        drafter_s = getattr(reply, "drafter_s", None)  # a reply of another version may lack what it should have
        sound = isinstance(reply, DraftReply) and hasattr(reply, "answer") and isinstance(drafter_s, float)
        if not sound or not 0.0 <= drafter_s < float("inf"):
            raise DrafterBrokenError(f"drafter {self._name} needs to send a DraftReply, found {reply!r:.60}")
        return reply

    def close(self, generation: GenerationId) -> None:
        """See ``DrafterTransport.close``."""
        self._handle.close.remote(generation)

    async def _answer(self, reference: Any, deadline_s: float) -> Any:
        try:
            return await within(deadline_s, reference)
        except TimeoutError:
            raise DrafterLostError(
                f"drafter {self._name} needs to answer within {deadline_s:g} s and did not; the generation goes on "
                "without it"
            ) from None
        except RayActorError as error:
            raise DrafterLostError(f"drafter {self._name} is gone: {type(error).__name__}") from error
        except RayTaskError as error:
            if isinstance(error.cause, OutriderError):
                raise error.cause from None
            raise DrafterBrokenError(f"drafter {self._name} failed: {error.cause!r:.200}") from error
        except RayError as error:
            raise DrafterLostError(f"drafter {self._name} cannot be reached: {type(error).__name__}") from error

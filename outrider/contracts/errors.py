"""Typed errors of the algorithms. ``serve_app/api/http_errors.py`` maps each to one HTTP answer.

Every message says what was needed, what was found and what to do.
"""

from itertools import islice

_SHOWN_CHARS = 2_000
_SHOWN_ITEMS = 16
_SHOWN_LEVELS = 2


class OutriderError(Exception):
    """Base of all errors a user or an operator can cause."""


class ParameterError(OutriderError, ValueError):
    """A value given by a user is outside what its field allows."""

    def __init__(self, field: str, needed: str, found: object) -> None:
        self.field, self.needed, self.found = field, needed, found
        super().__init__(f"{field} needs {needed}, found {shown_value(found)}")

    def __reduce__(self) -> tuple[type, tuple[str, str, object]]:
        """Pickle by constructor arguments, so that the error crosses process boundaries."""
        return type(self), (self.field, self.needed, self.found)


def shown_value(value: object) -> str:
    """As ``repr``, of the first items and characters alone: a value that was found may be as long as a request."""
    return _cut(_shown(value, _SHOWN_LEVELS))


def _shown(value: object, levels: int) -> str:
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARS])
    if not isinstance(value, list | dict):
        try:
            return repr(value)
        except (ValueError, RecursionError):  # an integer of more digits than Python writes, or nested too deeply
            return f"a {type(value).__name__} too large to show"
    if not levels:
        return "..."
    if isinstance(value, dict):
        opens, closes = "{}"
        items = [f"{_shown(k, 0)}: {_shown(v, levels - 1)}" for k, v in islice(value.items(), _SHOWN_ITEMS)]
    else:
        opens, closes = "[]"
        items = [_shown(item, levels - 1) for item in value[:_SHOWN_ITEMS]]
    more = [] if len(value) <= _SHOWN_ITEMS else ["..."]
    return f"{opens}{', '.join(items + more)}{closes}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


class ConfigError(ParameterError):
    """The configuration file has an unknown key, a wrong type or a value out of range."""


class ShapeError(OutriderError, ValueError):
    """Two arrays that must agree on a dimension do not."""


class PairMismatchError(OutriderError):
    """What was learned for one pair of models is to be used with another."""


class VocabularyMismatchError(OutriderError):
    """Drafter and target do not share a token map; speculating with them would be lossy."""


class ModelUnavailableError(OutriderError):
    """A model is neither in the cache nor obtainable, or fails its checksum."""


class ContextTooLongError(OutriderError):
    """A generation needs more positions than the model or the KV budget can ever hold."""


class GrammarError(OutriderError):
    """A request's grammar takes too much to follow, or leads nowhere."""


class UnsupportedModelError(OutriderError):
    """The model computes something the engine does not implement; serving it would change its output."""


class EngineUnavailableError(OutriderError):
    """The configured engine is not installed, is broken, or cannot start here."""


class UnsupportedBlockError(OutriderError):
    """A block asks for a rule, a shape or a draft distribution this engine does not implement."""


class IllegalTransitionError(OutriderError):
    """A state machine was given an event its present state does not allow."""


class BusyError(OutriderError):
    """The service holds as many generations as it may; try again later."""


class NotAdmittedError(BusyError):
    """A response was not begun, as there was no room for what it is promised; ``retry_after_s`` says when to ask."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        self.message, self.retry_after_s = message, retry_after_s
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        """Pickle by constructor arguments, so that the error crosses process boundaries."""
        return type(self), (self.message, self.retry_after_s)


class MessageError(OutriderError):
    """Bytes from the link are not a message this side can read: truncated, oversized, corrupt, another version."""


class ChecksumError(MessageError):
    """A message's checksum does not fit: it was damaged, or the two sides disagree about the committed prefix."""


class DrafterLostError(OutriderError):
    """The drafter died or does not answer in time. Its state is to be taken as gone."""


class DrafterSilentError(DrafterLostError):
    """Nothing says that the drafter died, but its answer is not here: it is late, or was lost on its way."""


class DrafterBrokenError(OutriderError):
    """The drafter answers nonsense (the wrong round, tokens that do not exist), or fails at what it is asked."""


class DraftingFailedError(OutriderError):
    """A drafter fails at this generation, alone and again; for others it drafts."""


class VerifierLostError(OutriderError):
    """The verifier died or did not answer in time. It restarts empty: generations must be opened again."""


class CoordinatorSilentError(VerifierLostError):
    """A coordinator stands still or is cut off, with its verifier; another one can go on with what it makes."""


class VerifierAwayError(OutriderError):
    """A coordinator has no verifier now and another one has: nothing was begun, the response is to be made there."""


class CoordinatorDrainingError(VerifierAwayError):
    """A coordinator takes nothing new, and another one has room: what it has begun is to go on there."""


class OtherTargetError(OutriderError):
    """A coordinator has another target than a response was begun with, or its tokens are of: nothing was begun."""


class FleetUnavailableError(OutriderError):
    """The fleet actor does not answer; it restarts, and responses go on meanwhile."""


class GenerationFailedError(OutriderError):
    """A response cannot be completed, through no fault of the request."""


class RequestFailedError(OutriderError):
    """The service fails at this request, alone and again: nobody else is to be asked to make it."""


class NonFiniteError(RequestFailedError):
    """The model's own numbers for this request are NaN or infinite: there is no token to choose by them."""

"""Typed errors of the algorithms. ``serve_app/api/http_errors.py`` maps each to an HTTP status.

Every message names what was needed, what was found and what to do.
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
    """Return a truncated ``repr``: the first items and characters. A value may be as long as a request."""
    return _cut(_shown(value, _SHOWN_LEVELS))


def _shown(value: object, levels: int) -> str:
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARS])
    if not isinstance(value, list | dict):
        try:
            return repr(value)
        except (ValueError, RecursionError):  # an integer beyond Python's digit limit, or nesting that is too deep
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


class InstallationError(OutriderError):
    """Another distribution's package hides one of ours."""


class ShapeError(OutriderError, ValueError):
    """Two arrays that must agree on a dimension do not."""


class PairMismatchError(OutriderError):
    """Data trained for one pair of models is to be used with another pair."""


class VocabularyMismatchError(OutriderError):
    """Drafter and target do not share a token map; speculating with them would be lossy."""


class ModelUnavailableError(OutriderError):
    """A model is neither in the cache nor obtainable, or fails its checksum."""


class ContextTooLongError(OutriderError):
    """A generation needs more positions than the model or the KV budget can hold."""


class GrammarError(OutriderError):
    """A request's grammar exceeds its limits, or has no continuation."""


class UnsupportedModelError(OutriderError):
    """The model needs an operation that the engine does not implement; without it output would differ."""


class EngineUnavailableError(OutriderError):
    """The configured engine is not installed, is broken, or cannot start on this machine."""


class UnsupportedBlockError(OutriderError):
    """A block asks for a rule, a shape or a draft distribution this engine does not implement."""


class IllegalTransitionError(OutriderError):
    """A state machine was given an event that its state does not allow."""


class BusyError(OutriderError):
    """The service holds as many generations as it may; the client should retry later."""


class NotAdmittedError(BusyError):
    """A response was not begun, as its promise could not be kept; retry after ``retry_after_s``."""

    waited = False

    def __init__(self, message: str, retry_after_s: int, waited: bool = False) -> None:  # noqa: FBT002 (pickled)
        """``waited``: it waited as long as it might, in vain."""
        self.message, self.retry_after_s, self.waited = message, retry_after_s, waited
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, int, bool]]:
        return type(self), (self.message, self.retry_after_s, self.waited)


class MessageError(OutriderError):
    """Bytes from the link that cannot be decoded: truncated, oversized, corrupt, or of another version."""


class ChecksumError(MessageError):
    """A message's checksum does not match: it was damaged, or the two sides hold different committed prefixes."""


class DrafterLostError(OutriderError):
    """The drafter died or did not answer in time. Its state counts as lost."""


class DrafterSilentError(DrafterLostError):
    """The drafter's answer is missing, with no sign that it died: the answer is late, or was lost on its way."""


class DrafterBrokenError(OutriderError):
    """The drafter answers invalidly (wrong round, token ids that do not exist), or raises an error."""


class DraftingFailedError(OutriderError):
    """A drafter fails at this generation, repeatedly and alone; it still drafts for others."""


class VerifierLostError(OutriderError):
    """The verifier died or did not answer in time. It restarts empty: generations must be opened again."""


class CoordinatorSilentError(VerifierLostError):
    """A coordinator hangs or is cut off, with its verifier; another one can resume its responses."""


class VerifierAwayError(OutriderError):
    """This coordinator has no verifier now, another one has: nothing was begun, send the response there."""


class CoordinatorDrainingError(VerifierAwayError):
    """A coordinator takes no new responses, and another one can: resume the responses it has begun there."""


class OtherTargetError(OutriderError):
    """The coordinator's target differs from the one a response was begun with; nothing was begun."""


class FleetUnavailableError(OutriderError):
    """The fleet actor does not answer. It restarts; responses continue meanwhile."""


class GenerationFailedError(OutriderError):
    """A response cannot be completed, for a reason that is not in the request."""


class RequestFailedError(OutriderError):
    """The service fails at this request, repeatedly and alone: do not retry it elsewhere."""


class NonFiniteError(RequestFailedError):
    """The model's logits or hidden states for this request are NaN or infinite: no token can be chosen."""

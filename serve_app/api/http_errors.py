"""Every error that a client may see: one table from type to HTTP status, in OpenAI's form.

A client's mistake is explained to it. A fault of the service is logged under the request's id; the client learns only
whether to try again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from actors.ray_errors import cause_of
from outrider.contracts.errors import (
    BusyError,
    ContextTooLongError,
    DrafterBrokenError,
    DrafterLostError,
    EngineUnavailableError,
    FleetUnavailableError,
    GenerationFailedError,
    GrammarError,
    ModelUnavailableError,
    NonFiniteError,
    NotAdmittedError,
    OtherTargetError,
    OutriderError,
    ParameterError,
    RequestFailedError,
    VerifierAwayError,
    VerifierLostError,
)
from serve_app.answers import ErrorBody, ErrorDetail

DROPPED_HEADER = "x-llm-d-request-dropped-reason"  # why a request was not served, as llm-d's router says it
DroppedReason = Literal["rejected-saturated", "rejected-ttl-expired", "rejected-no-endpoints"]
_RETRY_AFTER_S = 1
_MAX_MESSAGE_CHARS = 600  # a message ends with the value found, which may be as long as a request
_MAX_PARAM_CHARS = 100


class FieldError(OutriderError):
    """A field of a request is invalid. ``field`` is its path, as in ``messages[0].content``."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


class UnknownFieldError(FieldError):
    """The API has no such field."""


class UnsupportedFieldError(FieldError):
    """A field or value of OpenAI's API that is not supported yet."""


class MissingFieldError(FieldError):
    """A required field is missing."""


class PromptTooLongError(FieldError, ContextTooLongError):
    """Prompt, or prompt and output together, exceed the context."""


class UnknownModelError(FieldError):
    """The request names a model that is not served."""


class KeyRefusedError(OutriderError):
    """The API key is missing or unknown."""


class NotAllowedError(FieldError):
    """The field names something that exists, but not for this key."""


class OverQuotaError(OutriderError):
    """A key's quota does not admit a request now; ``retry_after_s`` is when it should."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class MalformedBodyError(OutriderError):
    """The body is not a JSON object."""


class BodyTooLargeError(OutriderError):
    """The body exceeds the size limit."""


class BodyTooSlowError(OutriderError):
    """The body did not arrive in time."""


class MediaTypeError(OutriderError):
    """The body's type is not JSON."""


class HostError(OutriderError):
    """``Host`` is missing or repeated."""


class MisdirectedError(OutriderError):
    """The request is for a host name that this service does not serve."""


class UnknownPathError(OutriderError):
    pass


class MethodError(OutriderError):
    """The URL exists, but not for this method."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What clients are told about one type of error."""

    status: int  # HTTP status
    type: str  # OpenAI's coarse kind
    code: str  # OpenAI's fine kind
    message: str | None = None  # replaces the error's own message if that would expose internals
    retry: bool = False  # whether the same request may succeed soon


_INVALID, _SERVER = "invalid_request_error", "server_error"
_BUSY = ErrorKind(
    429, "rate_limit_error", "busy", "as many responses as possible are being made; try again later", retry=True
)
_UNAVAILABLE = ErrorKind(
    503, _SERVER, "unavailable", "the model lost one of its processes; it is being replaced, try again", retry=True
)
_INTERNAL = ErrorKind(500, _SERVER, "internal_error", "internal error; it is logged under the X-Request-Id returned")

# The first class of an error's method resolution order that is in the table decides.
ERROR_KINDS: Mapping[type[BaseException], ErrorKind] = {
    ParameterError: ErrorKind(400, _INVALID, "invalid_value"),
    MissingFieldError: ErrorKind(400, _INVALID, "missing_required_parameter"),
    UnknownFieldError: ErrorKind(400, _INVALID, "unknown_parameter"),
    UnsupportedFieldError: ErrorKind(400, _INVALID, "unsupported_parameter"),
    ContextTooLongError: ErrorKind(400, _INVALID, "context_length_exceeded"),
    GrammarError: ErrorKind(400, _INVALID, "invalid_grammar"),
    MalformedBodyError: ErrorKind(400, _INVALID, "invalid_json"),
    KeyRefusedError: ErrorKind(401, _INVALID, "invalid_api_key"),
    NotAllowedError: ErrorKind(403, "permission_error", "not_allowed"),
    UnknownModelError: ErrorKind(404, _INVALID, "model_not_found"),
    HostError: ErrorKind(400, _INVALID, "invalid_host"),
    MisdirectedError: ErrorKind(421, _INVALID, "misdirected_request"),
    UnknownPathError: ErrorKind(404, _INVALID, "unknown_url"),
    MethodError: ErrorKind(405, _INVALID, "method_not_allowed"),
    BodyTooSlowError: ErrorKind(408, _INVALID, "request_timeout"),
    BodyTooLargeError: ErrorKind(413, _INVALID, "request_too_large"),
    MediaTypeError: ErrorKind(415, _INVALID, "unsupported_media_type"),
    OverQuotaError: ErrorKind(429, "rate_limit_error", "rate_limit_exceeded", retry=True),
    NotAdmittedError: ErrorKind(429, "rate_limit_error", "busy", retry=True),
    BusyError: _BUSY,
    BackPressureError: _BUSY,
    RequestFailedError: _INTERNAL,
    NonFiniteError: ErrorKind(
        500,
        _SERVER,
        "non_finite_logits",
        "the model's numbers for this request are not finite, so no token can be chosen; the error is logged",
    ),
    GenerationFailedError: _UNAVAILABLE,
    VerifierLostError: _UNAVAILABLE,
    VerifierAwayError: _UNAVAILABLE,
    OtherTargetError: _UNAVAILABLE,
    DrafterLostError: _UNAVAILABLE,
    DrafterBrokenError: _UNAVAILABLE,
    FleetUnavailableError: _UNAVAILABLE,
    ModelUnavailableError: _UNAVAILABLE,
    EngineUnavailableError: _UNAVAILABLE,
    RayError: _UNAVAILABLE,
    RayServeException: _UNAVAILABLE,
    TimeoutError: ErrorKind(504, _SERVER, "timeout", "the model did not answer in time; try again", retry=True),
    Exception: _INTERNAL,
}


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    status: int
    code: str
    body: ErrorBody
    headers: dict[str, str] = field(default_factory=dict)


def answer_for(error: Exception) -> ErrorAnswer:
    error = cause_of(error)
    kind = next(ERROR_KINDS[cls] for cls in type(error).__mro__ if cls in ERROR_KINDS)
    if isinstance(error, RayTaskError):  # its cause could not be unpickled, so it is not one of ours
        kind = _INTERNAL
    param = getattr(error, "field", None) if kind.status < 500 else None
    content: ErrorDetail = {
        "message": _shortened(kind.message or str(error), _MAX_MESSAGE_CHARS),
        "type": kind.type,
        "param": None if param is None else _shortened(str(param), _MAX_PARAM_CHARS),
        "code": kind.code,
    }
    retry_after_s = error.retry_after_s if isinstance(error, NotAdmittedError | OverQuotaError) else _RETRY_AFTER_S
    headers = {"Retry-After": str(retry_after_s)} if kind.retry else {}
    if (dropped := dropped_reason(error, kind.status)) is not None:
        headers[DROPPED_HEADER] = dropped
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ErrorAnswer(kind.status, kind.code, {"error": content}, headers)


def _shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."


def dropped_reason(error: BaseException, status: int) -> DroppedReason | None:
    """The reason of a refusal by its error; None for other answers.

    A batch gateway retries what is saturated, and gives up what has waited in vain.
    """
    if status == 503:
        return "rejected-no-endpoints"
    if status != 429:
        return None
    waited = isinstance(error, NotAdmittedError) and error.waited
    return "rejected-ttl-expired" if waited else "rejected-saturated"

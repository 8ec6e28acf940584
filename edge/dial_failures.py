"""Why a device is at no gateway, in plain words with what to do, and how long it waits before it dials again."""

import ssl
from datetime import UTC, datetime
from urllib.error import URLError

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from edge.dialled_link import GatewayRefusedError
from outrider.contracts.errors import ModelUnavailableError, OutriderError
from outrider.wire.dialling import RefusalCode

_MOST_CHARS = 400
_LEAST_S = 0.1
_FIRST_S, _MOST_S = 0.5, 5.0  # the longest wait before the second dial, and before any
_REPLACED_S = 60.0  # or two processes of one identity would replace each other for ever
_USELESS_S = 60.0  # until a certificate, a file or an ingress is mended
_TODO = {
    RefusalCode.UNKNOWN_IDENTITY: "have this device's certificate or key let in at the gateway, and start it again",
    RefusalCode.REVOKED: "ask whoever runs the gateway, and start it again with a new certificate or key",
    RefusalCode.VERSION: "install the gateway's release of outrider-edge",
    RefusalCode.UNFIT: "ask whoever runs the gateway",
    RefusalCode.GROUP_FULL: "another device has to leave, or the group be made larger at the gateway",
    RefusalCode.GROUP_CLOSED: "the group has to be opened at the gateway",
    RefusalCode.TOO_MANY: "nothing is to be done",
    RefusalCode.BUSY: "nothing is to be done",
    RefusalCode.REPLACED: "stop one of the two, or give each a certificate or key of its own",
}
_TEXTS: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (
        ssl.SSLCertVerificationError,
        "the gateway's certificate cannot be trusted ({0.verify_message}); see --ca, and dial a name that is in it",
    ),
    (ssl.SSLError, "no TLS with the gateway ({0.reason}); it may ask for a certificate of its CA: --cert and --key"),
    (InvalidStatus, "no gateway answered, but HTTP {0.response.status_code}; see --connect, and the ingress"),
    (InvalidMessage, "nothing was answered; the gateway may ask for a certificate of its CA: --cert and --key"),
    (InvalidHandshake, "no gateway answered: {0}; see --connect, and proxies in this device's environment"),
    (ConnectionClosed, "the connection was closed ({0})"),
    (TimeoutError, "the gateway did not answer in time; see its address, and this device's network"),
    (OutriderError, "{0}"),
    (Exception, "the gateway cannot be reached ({0}); see its address, and this device's network"),
)
_OF_THE_CLOCK = (9, 10)  # of OpenSSL: not yet valid, expired
_CLOCK = (
    "by this device's clock, which says {now:%Y-%m-%d %H:%M} UTC, the gateway's {said}; set the clock, or have the "
    "gateway's certificate renewed"
)
_IDENTITY = (401, 403)
_LASTING = (*_IDENTITY, 400, 404, 405, 410, 426)  # others pass: of an ingress whose gateway starts anew


def never_again(error: GatewayRefusedError) -> bool:
    """Whether dialling again is of no use until somebody has changed something."""
    return not error.refused.retry_after_s and error.refused.code != RefusalCode.REPLACED


def usual_wait_s(failures: int, addresses: int) -> float:
    """Return the longest wait before the next dial, doubled each time that all addresses have failed."""
    return min(_MOST_S, _FIRST_S * 2.0 ** min(failures // addresses, 9))


def wait_range_s(error: Exception, usual_s: float) -> tuple[float, float]:
    """Return the shortest and the longest wait before the next dial; ``usual_s``: the longest of a lost connection."""
    if isinstance(error, GatewayRefusedError):
        retry_s = float(error.refused.retry_after_s)
        if error.refused.code == RefusalCode.REPLACED:
            return max(_REPLACED_S, retry_s), 1.5 * max(_REPLACED_S, retry_s)
        return _LEAST_S, max(_LEAST_S, retry_s)
    useless = isinstance(error, InvalidStatus) and error.response.status_code in _LASTING
    if useless or isinstance(error, ModelUnavailableError):
        return _USELESS_S, 1.5 * _USELESS_S
    return _LEAST_S, usual_s


def failure_text(error: Exception) -> str:
    """Return a line: what is wrong, and what to do about it."""
    text = _text(error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error)
    return "".join(char if char.isprintable() else " " for char in text[:_MOST_CHARS])


def _text(error: Exception) -> str:
    if isinstance(error, GatewayRefusedError):
        return f"the gateway refused this device: {error}; {_TODO[error.refused.code]}"
    if isinstance(error, InvalidStatus) and error.response.status_code in _IDENTITY:
        return f"HTTP {error.response.status_code}: this device was refused; see --cert and --key, or --key-file"
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _OF_THE_CLOCK:
        return _CLOCK.format(now=datetime.now(UTC), said=error.verify_message)
    return next(text for kind, text in _TEXTS if isinstance(error, kind)).format(error)

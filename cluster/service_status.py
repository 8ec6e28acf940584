"""The service's ``GET /status`` as data. Pure."""

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from actors.messages import CoordinatorReport, DrafterStatus, GatewayStatus
from outrider.contracts.errors import OutriderError


class StatusError(OutriderError):
    """The service does not answer, or not with a status."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    model: str
    coordinators: tuple[CoordinatorReport, ...]
    drafters: tuple[DrafterStatus, ...]
    gateways: tuple[GatewayStatus, ...] = ()


_ADAPTER = TypeAdapter(ServiceStatus)


def parse_status(body: str | bytes) -> ServiceStatus:
    try:
        return _ADAPTER.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise StatusError(f"needs the status of an Outrider service, found in {where}: {first['msg']}") from error

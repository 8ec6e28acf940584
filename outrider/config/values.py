"""Types of single values of the configuration, which are strict: ``"8"`` is not an integer."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from outrider.contracts.errors import ConfigError
from outrider.documents.names import NameIn
from outrider.scheduling.registry import SCHEDULING

Text = Annotated[str, Field(strict=True, min_length=1)]
ModelHash = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$", description="64 hex digits, a model's hash")]
Name = Annotated[
    str,
    Field(
        strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="a short name of a-z, 0-9, and inside - or _"
    ),
]
Origin = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^/\s]+)$",
        description='an origin such as https://my.page:8443, without a path, or "*"',
    ),
]
HostName = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^(\*|[a-z0-9_.-]+|\[[0-9a-f:.]+\])$",
        description='a host name of lower case, without a port, an IPv6 address in brackets, or "*"',
    ),
]
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Threads = Annotated[int, Field(strict=True, ge=1, le=1024)]
Number = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
PositiveNumber = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Mebibytes = Annotated[int, Field(strict=True, ge=16, le=1_048_576)]
Window = Annotated[int, Field(strict=True, ge=0, le=64)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Share = Annotated[float, Field(strict=True, ge=0, le=1_024)]  # of CPUs or GPUs; Ray accepts fractions
Quantity = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]
Verification = Literal["lossless", "semantic"]
Trust = Literal["trusted", "untrusted"]
TokensPerSecond = Annotated[float, Field(strict=True, ge=0, le=100_000)]
Milliseconds = Annotated[float, Field(strict=True, ge=0, le=60_000)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1)]
LossRate = Annotated[float, Field(strict=True, ge=0, le=0.99)]  # of packets
DrafterDType = Literal["auto", "int8", "float32", "bfloat16", "float16"]
TargetDType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["cpu", "cuda"]
Resources = Mapping[Text, Quantity]  # Ray's custom resources
SchedulingName = Annotated[str, NameIn(SCHEDULING)]
FORBID = ConfigDict(extra="forbid")


def check_gpu(device: Device, num_gpus: float) -> None:
    """Refuse a CUDA device without a GPU share: Ray would hide every GPU from the process."""
    if device == "cuda" and num_gpus == 0:
        raise ConfigError("num_gpus", "a share above 0 where device is cuda", num_gpus)


def check_networks(field: str, proxies: Iterable[str]) -> None:
    for proxy in proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            raise ConfigError(field, "IP addresses or networks, such as 10.0.0.7 or 10.0.0.0/8", proxy) from None

"""Types of JSON answers about the service itself, used as those of ``serve_app.answers``."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic accepts ``typing``'s only from Python 3.12 on

from actors.messages import CoordinatorReport, DrafterStatus, GatewayStatus
from outrider.contracts.verifying import KvUsage
from serve_app.answers import FieldsOf


class ModelOutrider(TypedDict):
    """Options that requests to this model may use. ``sampling``: defaults of requests that set no parameters."""

    sampling: dict[str, float]
    max_window: int
    protocols: Sequence[str]
    slo_classes: dict[str, float | None]


class Model(TypedDict):
    """The served model; ``max_model_len`` is its context in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    outrider: ModelOutrider


class ModelList(TypedDict):
    """The served models: one."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(TypedDict):
    """As in vLLM. ``token_strs`` are the vocabulary's; null for an unknown id."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None


class Detokenized(TypedDict):
    """As in vLLM."""

    prompt: str


class Version(TypedDict):
    """Version of Outrider."""

    version: str


class Load(TypedDict):
    """As in vLLM: responses under way at this ingress."""

    server_load: int


class Health(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Ready(TypedDict):
    """Whether responses can be made now.

    The other fields are a coordinator's, or the ``reason`` why none was asked.
    """

    ready: bool
    verifier: NotRequired[Literal["answers", "does not answer"]]
    reason: NotRequired[str]
    max_context_tokens: NotRequired[int]
    generations: NotRequired[int]
    queued_blocks: NotRequired[int]
    kv: NotRequired[Annotated[dict[str, Any], FieldsOf(KvUsage)] | None]
    verifier_idle_s: NotRequired[float]


class Status(TypedDict):
    """State of the service, with counters since its coordinators started; ``outrider top`` shows it."""

    model: str
    drafters: Sequence[Annotated[dict[str, Any], FieldsOf(DrafterStatus)]]
    coordinators: Sequence[Annotated[dict[str, Any], FieldsOf(CoordinatorReport)]]
    gateways: Sequence[Annotated[dict[str, Any], FieldsOf(GatewayStatus)]]

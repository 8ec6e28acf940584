"""The served model as Anthropic's list of models has it: for requests with ``anthropic-version``."""

from datetime import UTC, datetime
from typing import Literal

from typing_extensions import TypedDict  # pydantic accepts ``typing``'s only from Python 3.12 on

from serve_app.service_answers import Model

VERSION_HEADER = "anthropic-version"


class ModelInfo(TypedDict):
    """The served model; ``max_input_tokens`` is its context, prompt and answer together."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int


class ModelInfoList(TypedDict):
    """The served models: one."""

    data: list[ModelInfo]
    has_more: Literal[False]
    first_id: str
    last_id: str


def model_info(card: Model) -> ModelInfo:
    return {
        "type": "model",
        "id": card["id"],
        "display_name": card["id"],
        "created_at": datetime.fromtimestamp(card["created"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": card["max_model_len"],
    }


def model_info_list(card: Model) -> ModelInfoList:
    return {"data": [model_info(card)], "has_more": False, "first_id": card["id"], "last_id": card["id"]}

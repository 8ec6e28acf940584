"""The embedded model with the chat templates of families that write tool calls in one form or another."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from outrider.config.schema import Config, ToolFormatName
from outrider.models.folders import resolve_folder
from tests.chaos.agents.asks import Agent, Api, Ask, asked
from tests.cluster.served import MODEL

_TEMPLATES = Path(__file__).parents[2] / "unit/serve_app/api/reasoning/templates"
# By form of calls, the family whose template is used; "": the model's own, which knows no tools.
FORMS: Mapping[ToolFormatName, str] = {
    "hermes": "qwen3",
    "llama3_json": "",
    "pythonic": "llama4",
    "qwen3_xml": "qwen3_coder",
    "mistral": "magistral",
    "mistral_list": "mistral_v7",
    "harmony": "gpt_oss",
}


def prompt_of(tokenizer: PreTrainedTokenizerBase, form: ToolFormatName, question: int) -> list[int] | None:
    """The tokens of a chat's prompt beside tools, by transformers alone; None where the service tells tools itself."""
    if not FORMS[form]:
        return None
    body = asked(Agent(Api.CHATS, Ask.TEXT, stream=False), question, 1, 0, form)
    ids: Any = tokenizer.apply_chat_template(
        body["messages"],
        tools=body["tools"],
        chat_template=_template_of(FORMS[form]),
        add_generation_prompt=True,
        return_dict=False,
        **body["chat_template_kwargs"],
    )
    return list(ids)


def with_form(config: Config, form: ToolFormatName, folder: Path) -> Config:
    """Let the embedded model be one that writes calls so. What it marks them with is text, and no token of its own."""
    target, family = folder / MODEL, FORMS[form]
    target.mkdir(parents=True)
    own = resolve_folder("embedded")
    for file in own.iterdir():
        if file.name not in ("tokenizer_config.json", "manifest.json"):
            (target / file.name).symlink_to(file)
    settings = json.loads((own / "tokenizer_config.json").read_text())
    if family:
        settings["chat_template"] = _template_of(family)
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    return replace(
        config,
        model=replace(config.model, target=str(target)),
        structured=replace(config.structured, tool_format=form),
    )


def _template_of(family: str) -> str:
    return (_TEMPLATES / f"{family}.jinja").read_text().rstrip("\n")

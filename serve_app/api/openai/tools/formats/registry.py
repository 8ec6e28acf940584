"""All forms of tool calls by their names, and the one of a model."""

from collections.abc import Mapping

from serve_app.api.openai.tools.formats.base import ToolFormat
from serve_app.api.openai.tools.formats.harmony import Harmony
from serve_app.api.openai.tools.formats.json_calls import HERMES, LLAMA3
from serve_app.api.openai.tools.formats.mistral import Mistral
from serve_app.api.openai.tools.formats.pythonic import Pythonic
from serve_app.api.openai.tools.formats.qwen_xml import QwenXml

FORMS: Mapping[str, ToolFormat] = {  # a template's form is the first that is in it
    "qwen3_xml": QwenXml(),
    "hermes": HERMES,
    "harmony": Harmony(),
    "mistral": Mistral(listed=False),
    "mistral_list": Mistral(listed=True),
    "pythonic": Pythonic(),
    "llama3_json": LLAMA3,
}


def form_in(configured: str, template: str | None) -> str:
    """Form of a model's calls, by its configuration or its chat template; ``""``: none."""
    if configured != "auto":
        return "" if configured == "none" else configured
    return next((name for name, form in FORMS.items() if form.is_in(template or "")), "")

"""Public families at a tiny shape: the tests' tokenizer with a family's marks and its form of chat template."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import backend_of
from serve_app.api.openai.reasoning.families import Thinking, thinking_of
from serve_app.api.openai.reasoning.marks import Mark, mark_in
from serve_app.api.openai.tools.formats.registry import FORMS
from serve_app.api.service import RequestLimits
from tests.unit.serve_app.api.text_service import LIMITS, TextService

_TEMPLATES = Path(__file__).parent / "templates"
_HARMONY = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"]
TOKENS: dict[str, tuple[list[str], list[str]]] = {  # special ones, others
    "qwen3": ([], ["<think>", "</think>", "<tool_call>", "</tool_call>"]),
    "deepseek_r1": (["<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"], ["<think>", "</think>"]),
    "magistral": (["[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "[INST]", "[/INST]"], []),
    "granite": ([], []),
    "kimi": ([], []),
    "gpt_oss": (_HARMONY, []),
    "qwen3_coder": ([], ["<tool_call>", "</tool_call>"]),
    "mistral_v7": (["[TOOL_CALLS]", "[INST]", "[/INST]"], []),
    "llama4": (["<|python_start|>", "<|python_end|>"], []),
}


@cache
def tokenizer_of(family: str) -> PreTrainedTokenizerBase:
    tokenizer, (special, others) = load_tokenizer("smollm2-135m-instruct"), TOKENS[family]
    tokenizer.add_tokens(special, special_tokens=True)
    tokenizer.add_tokens(others)
    tokenizer.chat_template = (_TEMPLATES / f"{family}.jinja").read_text().rstrip("\n")
    return tokenizer


@cache
def thinking_in(family: str) -> Thinking:
    found = thinking_of(tokenizer_of(family), None)
    assert found is not None
    return found


def tool_marks_of(family: str, tool_format: str) -> tuple[Mark, ...]:
    backend = backend_of(tokenizer_of(family))
    return tuple(mark_in(backend, text) for text in FORMS[tool_format].marks) if tool_format else ()


def limits_for(family: str, tool_format: str = "") -> RequestLimits:
    tokenizer = tokenizer_of(family)
    return replace(
        LIMITS,
        vocab_size=len(tokenizer),
        thinking=thinking_of(tokenizer, None),
        tool_format=tool_format,
        tool_marks=tool_marks_of(family, tool_format),
        max_context_tokens=4096,
        max_output_tokens=3000,
    )


def service_of(family: str, text: str, tool_format: str = "") -> TextService:
    return TextService(limits=limits_for(family, tool_format), tokenizer=tokenizer_of(family), texts=(text,))

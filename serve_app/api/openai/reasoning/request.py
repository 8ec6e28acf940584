"""What a request and its prompt say about reasoning: how the answers are read, and where a grammar begins."""

from outrider.contracts.requests import Grammar
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.message import PLAIN, MessageForm
from serve_app.api.openai.tools.request import read_tools
from serve_app.api.service import RequestLimits


def message_form(body: CompletionBody | ChatBody, prompt: str, limits: RequestLimits) -> MessageForm:
    """Return how the answers to a chat are read; a completion is all text."""
    if not isinstance(body, ChatBody):
        return PLAIN
    tools = limits.tool_format if read_tools(body, limits.tool_format) else ""
    thinking = limits.thinking
    if thinking is None:
        return MessageForm(tools=tools)
    return MessageForm(thinking, thinking.left_by(prompt), tools, body.include_reasoning)


def grammar_behind(grammar: Grammar, thinking: Thinking, prompt: str) -> Grammar:
    """Let a grammar begin behind the reasoning that a prompt leaves open, or that the model may open."""
    if thinking.left_by(prompt) is Opened.CLOSED or thinking.closes.token_id is None:
        return grammar
    return Grammar(grammar.text, thinking.closes.token_id)

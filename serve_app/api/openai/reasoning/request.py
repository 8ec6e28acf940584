"""What a request and its prompt say about reasoning: how the answers are read, and where a grammar begins."""

from outrider.contracts.requests import Grammar
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.message import PLAIN, MessageForm
from serve_app.api.openai.tools.request import read_tools
from serve_app.api.service import RequestLimits


def message_form(body: CompletionBody | ChatBody, prompt: str, limits: RequestLimits, *, in_form: bool) -> MessageForm:
    """Return how the answers to a chat are read; a completion is all text.

    ``in_form``: all of the answer is held to a grammar, from its first token on where the end of reasoning is no token.
    """
    if not isinstance(body, ChatBody):
        return PLAIN
    offered, thinking = read_tools(body, limits.tool_format), limits.thinking
    left = Opened.CLOSED if thinking is None else thinking.left_by(prompt)
    if left is Opened.OPEN and in_form and thinking is not None and thinking.closes.token_id is None:
        left = Opened.CLOSED
    return MessageForm(
        thinking,
        left,
        limits.tool_format if offered else "",
        body.include_reasoning,
        offered,
        limits.tool_marks if offered else (),
        body.parallel_tool_calls is not False,
    )


def tag_ids(body: CompletionBody | ChatBody, limits: RequestLimits) -> tuple[int, ...]:
    """Tokens whose places in the answers are needed."""
    if not isinstance(body, ChatBody):
        return ()
    thinking = () if limits.thinking is None else limits.thinking.tag_ids
    calls = (mark.token_id for mark in limits.tool_marks if mark.token_id is not None and mark.special and body.tools)
    return tuple(dict.fromkeys((*thinking, *calls)))


def grammar_behind(grammar: Grammar, thinking: Thinking, prompt: str) -> Grammar:
    """Let a grammar begin behind the reasoning that a prompt leaves open, or that the model opens with its first token.

    A model that reasons always, as the configuration has it, is not asked.
    """
    left, end = thinking.left_by(prompt), thinking.closes.token_id
    if thinking.channels or left is Opened.CLOSED or end is None:
        return grammar
    opens = None if thinking.opens is None or thinking.always or left is Opened.OPEN else thinking.opens.token_id
    return Grammar(grammar.text, end, opens)

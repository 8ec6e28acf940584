"""The constraints that a request puts on its answer, as one grammar.

They come from OpenAI's ``response_format``, a tool that must be called, or vLLM's ``structured_outputs``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import Grammar
from outrider.grammar.texts import ANY_OBJECT, nesting
from outrider.grammar.validating import GrammarKind, GrammarSource, GrammarVerdict
from serve_app.api.http_errors import MissingFieldError, UnknownFieldError, UnsupportedFieldError
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.tools.formats.base import Marks, Tool
from serve_app.api.openai.tools.request import (
    ANSWER_LINE,
    either_rules,
    forced_rules,
    must_call,
    read_tools,
    strict_rules,
)
from serve_app.api.service import RequestLimits, StructuredLimits

_FORMATS = "{'type': 'text'}, 'json_object' or 'json_schema' with a json_schema"
_KINDS = ("json", "json_object", "regex", "choice", "grammar")
_OPTIONS = ("disable_any_whitespace", "whitespace_pattern")
_NOT_YET = ("structural_tag", "disable_additional_properties")
_OLDER = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
_MOST_SHOWN_CHARS = 100
_EITHER_NEEDED = "a JSON schema that can be followed, beside tools with parameters that can be"
_AT = re.compile(r"line (\d+), column \d+: ")  # a place in the rules, which are ours
_TOOLS_NEEDED = "tools with parameters that can be followed"


@dataclass(frozen=True, slots=True)
class _GrammarField:
    field: str  # path of the field
    kind: str
    value: Any
    flexible: bool = True
    whitespace_pattern: str | None = None
    needed: str = ""  # replaces the kind's text in errors
    given: Any = None  # what was sent, where ``value`` is rules made of it
    tools: Any = None  # whose calls the rules have behind the answer


@dataclass(frozen=True, slots=True)
class RequestedGrammar:
    """The requested grammar, not validated yet."""

    field: str  # path of the field that asks for it
    needed: str  # what the field needs, for errors
    shown: str  # what was found there, shortened
    source: GrammarSource
    tools: str = ""  # what is shown of the tools whose calls the rules have behind the answer

    @property
    def holds_all(self) -> bool:
        """Whether all of an answer is held to it; strict tools leave the text before and between calls free."""
        return self.field != "tools"

    def validated(self, verdict: GrammarVerdict) -> Grammar:
        """Return the grammar for verifiers, unless the verdict is that it cannot be compiled."""
        if verdict.needed:
            raise ParameterError(self.field, verdict.needed, verdict.found)
        if verdict.fault:
            at = _AT.match(verdict.fault) if self.tools else None
            fault = verdict.fault[at.end() :] if at else verdict.fault
            if at and int(at[1]) > ANSWER_LINE:
                raise ParameterError("tools", f"{_TOOLS_NEEDED} ({fault})", self.tools)
            raise ParameterError(self.field, f"{self.needed} ({fault})", self.shown)
        return Grammar(verdict.text)


def read_grammar(body: CompletionBody | ChatBody, limits: RequestLimits) -> RequestedGrammar | None:
    """Return the one grammar that a request asks for; may be called from any thread.

    Raises:
        ParameterError: it is of the wrong type, too large, or conflicts with another field.
        MissingFieldError: a format lacks its schema.
        UnknownFieldError: a field that ``structured_outputs`` does not have.
        UnsupportedFieldError: one of vLLM's that is not supported here.
    """
    tools = read_tools(body, limits.tool_format) if isinstance(body, ChatBody) else ()
    asked = [*_by_format(body, tools, limits), *_by_structured_outputs(body), *_by_older_names(body)]
    if isinstance(body, ChatBody) and tools:
        asked += _by_tools(body, tools, limits, has_form=bool(asked))
    if not asked:
        return None
    first, *others = asked
    if others:
        raise ParameterError(others[0].field, f"to be left out beside {first.field}", _shown(others[0].value))
    if body.min_tokens:
        raise ParameterError("min_tokens", f"0 beside {first.field}, which ends the response", body.min_tokens)
    if body.ignore_eos:
        raise ParameterError("ignore_eos", f"false beside {first.field}, which ends the response", found=True)
    return _bounded(first, limits.structured)


def begun_by(grammar: Grammar, prompt_ids: Sequence[int], structured: StructuredLimits) -> Grammar:
    """Let a grammar begin behind the reasoning that a prompt leaves open, if the model reasons before it answers."""
    reasoning = structured.reasoning
    if reasoning is None:
        return grammar
    last = next((token for token in reversed(prompt_ids) if token in reasoning), None)
    return grammar if last == reasoning.end else Grammar(grammar.text, reasoning.end)


def _by_format(body: CompletionBody | ChatBody, tools: Sequence[Tool], limits: RequestLimits) -> list[_GrammarField]:
    """What ``response_format`` asks for: beside tools, an answer in it or calls; only calls where these must be."""
    found = _format(body)
    if not found or not isinstance(body, ChatBody) or not tools:
        return found
    if must_call(body, tools):
        return []  # the rules of a call that must be made are all
    (asked,) = found
    _check_bytes(asked.field, asked.value, limits.structured)
    schema = ANY_OBJECT if asked.kind == "json_object" else _json(_parsed(asked.value))
    if schema is None:
        return found
    rules = either_rules(body, tools, limits.tool_format, f"%json {schema}", _marks(limits))
    return [_GrammarField(asked.field, "grammar", rules, needed=_EITHER_NEEDED, given=asked.value, tools=body.tools)]


def _format(body: CompletionBody | ChatBody) -> list[_GrammarField]:
    found = body.response_format
    if found is None:
        return []
    kind = found.get("type")
    known = {"type", "json_schema"} if kind == "json_schema" else {"type"}
    _check_known("response_format", found, known)
    if kind == "text":
        return []
    if kind == "json_object":
        return [_GrammarField("response_format", "json_object", value=True)]
    if kind != "json_schema":
        raise ParameterError("response_format.type", _FORMATS, _shown(kind))
    described = found.get("json_schema")
    if not isinstance(described, dict):
        raise ParameterError("response_format.json_schema", "an object with a name and a schema", _shown(described))
    _check_known("response_format.json_schema", described, {"name", "description", "schema", "strict"})
    if "schema" not in described:
        field = "response_format.json_schema.schema"
        raise MissingFieldError(field, f"{field} is missing; it needs a JSON schema")
    return [_GrammarField("response_format.json_schema.schema", "json", described["schema"])]


def _by_structured_outputs(body: CompletionBody | ChatBody) -> list[_GrammarField]:
    found = {name: value for name, value in (body.structured_outputs or {}).items() if value is not None}
    if body.structured_outputs is None:
        return []
    for name in _NOT_YET:
        if found.pop(name, False):
            field = f"structured_outputs.{name}"
            raise UnsupportedFieldError(field, f"{field} is not supported yet; say it in the schema")
    _check_known("structured_outputs", found, {*_KINDS, *_OPTIONS})
    kinds = [kind for kind in _KINDS if kind in found and found[kind] is not False]
    if len(kinds) != 1:
        raise ParameterError("structured_outputs", f"one of {', '.join(_KINDS)}", ", ".join(kinds) or "none")
    kind = kinds[0]
    flexible = not _typed("structured_outputs", found, "disable_any_whitespace", bool, "true or false", default=False)
    pattern = _typed("structured_outputs", found, "whitespace_pattern", str, "a regular expression", default=None)
    return [_GrammarField(f"structured_outputs.{kind}", kind, found[kind], flexible, pattern)]


def _by_older_names(body: CompletionBody | ChatBody) -> list[_GrammarField]:
    asked = ((name, kind, getattr(body, name)) for name, kind in _OLDER.items())
    return [_GrammarField(name, kind, value) for name, kind, value in asked if value is not None]


def _by_tools(body: ChatBody, tools: Sequence[Tool], limits: RequestLimits, *, has_form: bool) -> list[_GrammarField]:
    """``has_form``: another field says what all of the answer is, calls included."""
    form, marks = limits.tool_format, _marks(limits)
    if must_call(body, tools):
        forced = forced_rules(body, tools, form, marks)
        return [_GrammarField("tool_choice", "grammar", forced, needed=_TOOLS_NEEDED, given=body.tools)]
    rules = None if has_form else strict_rules(body, tools, form, marks)
    return [] if rules is None else [_GrammarField("tools", "grammar", rules, needed=_TOOLS_NEEDED, given=body.tools)]


def _marks(limits: RequestLimits) -> Marks:
    return {mark.text: mark for mark in limits.tool_marks}


def _bounded(asked: _GrammarField, structured: StructuredLimits) -> RequestedGrammar:
    """Refuse a grammar that is not text, or too long."""
    needed, kind, write = _KINDS_OF_GRAMMAR[asked.kind]
    needed = asked.needed or needed
    _check_bytes(asked.field, asked.value, structured)
    text = write(asked.value)
    if text is None:
        raise ParameterError(asked.field, needed, _shown(asked.value))
    if (depth := nesting(text)) > structured.max_nesting:
        raise ParameterError(asked.field, f"at most {structured.max_nesting} brackets in each other", depth)
    if asked.whitespace_pattern is not None:
        _check_bytes("structured_outputs.whitespace_pattern", asked.whitespace_pattern, structured)
    source = GrammarSource(kind, text, asked.flexible, asked.whitespace_pattern)
    shown = _shown(asked.value if asked.given is None else asked.given)
    return RequestedGrammar(asked.field, needed, shown, source, _shown(asked.tools) if asked.tools else "")


def _check_bytes(field: str, value: object, structured: StructuredLimits) -> None:
    """Refuse a value that is too long, or nested too deeply to serialise, without serialising all of it."""
    size = 0
    pieces = [value] if isinstance(value, str) else json.JSONEncoder(ensure_ascii=False).iterencode(value)
    try:
        for piece in pieces:
            size += len(piece.encode(errors="surrogatepass"))
            if size > structured.max_bytes:
                found = f"{size} bytes" if isinstance(value, str) else "more"
                raise ParameterError(field, f"at most {structured.max_bytes} bytes", found)
    except RecursionError:
        raise ParameterError(field, f"at most {structured.max_nesting} brackets in each other", "more") from None


def _json(value: object) -> str | None:
    if isinstance(value, bool):
        return "{}" if value else '{"not": {}}'
    if isinstance(value, dict):
        return json.dumps(value)
    return value if isinstance(value, str) else None


def _parsed(schema: object) -> object:
    """A schema that is an object, or a boolean; None of a text that is no such JSON."""
    if not isinstance(schema, str):
        return schema
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | bool) else None


def _any_object(_: object) -> str:
    return ANY_OBJECT


def _regex(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _choice(value: object) -> str | None:
    fits = isinstance(value, list) and value and all(isinstance(one, str) and one for one in value)
    return json.dumps(value) if fits else None


def _rules(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


_KINDS_OF_GRAMMAR: Mapping[str, tuple[str, GrammarKind, Callable[[object], str | None]]] = {
    "json": ("a JSON schema that can be followed", GrammarKind.JSON_SCHEMA, _json),
    "json_object": ("true", GrammarKind.JSON_SCHEMA, _any_object),
    "regex": ("a regular expression that can be followed", GrammarKind.REGEX, _regex),
    "choice": ("a list of texts, none of them empty", GrammarKind.CHOICE, _choice),
    "grammar": ("a grammar in Lark's form or in GBNF", GrammarKind.RULES, _rules),
}


def _check_known(where: str, found: Mapping[str, object], known: set[str]) -> None:
    for name in found:
        if name not in known:
            short = name[:64]
            hint = f"known here: {', '.join(sorted(known))}"
            raise UnknownFieldError(f"{where}.{short}", f"{where}.{short} is not a known field; {hint}")


def _typed(where: str, found: Mapping[str, Any], name: str, kind: type, needed: str, *, default: Any) -> Any:
    value = found.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise ParameterError(f"{where}.{name}", needed, _shown(value))
    return value


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN_CHARS else f"{text[:_MOST_SHOWN_CHARS]}..."

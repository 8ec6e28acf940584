"""Validate and convert grammars that users write: check bounds first, then run the library, which may fail in any way.

Runs in a process of its own (``validator``), which bounds the library's time and memory.
"""

import ctypes
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from outrider.grammar import texts
from outrider.grammar.gbnf import lark_of_gbnf
from outrider.grammar.places import explained_expression
from outrider.grammar.repeats import TooLargeError, check_regex, check_rules, replace_json
from outrider.grammar.schema_bounds import check_schema
from outrider.grammar.schema_subset import followed

if TYPE_CHECKING:
    from llguidance import LLParserLimits, LLTokenizer

MAX_COMPILED_BYTES = 8 * 2**20  # of one grammar in a verifier; usual ones take 0.2 MiB, 1,800 properties 7 MiB
# The library descends by recursion. A verifier compiles on four times the stack that grammars are validated on: one
# that overflows a stack ends the validating process, never a verifier.
STACK_BYTES = 4 * 2**20
_MAX_FAULT_CHARS = 400


class GrammarKind(StrEnum):
    """Language a grammar is written in."""

    JSON_SCHEMA = "json"
    REGEX = "regex"
    CHOICE = "choice"  # a JSON list of texts
    RULES = "grammar"  # Lark or GBNF


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A grammar as the user wrote it."""

    kind: GrammarKind
    text: str
    flexible: bool = True  # whether JSON may have whitespace anywhere
    whitespace_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GrammarVerdict:
    """Result of validation: the grammar in the library's form, or what is wrong with it.

    ``needed`` and ``found`` describe an exceeded bound; ``fault`` is the library's message.
    """

    text: str = ""
    fault: str = ""
    needed: str = ""
    found: str | float = ""

    @property
    def is_valid(self) -> bool:
        return not (self.fault or self.needed)


@dataclass(frozen=True, slots=True)
class _Converted:
    text: str  # in the library's form
    explained: Callable[[str], str] = lambda fault: fault  # the library's message about it, in the user's terms


def validate(source: GrammarSource) -> GrammarVerdict:
    """Check, convert and compile a source. Never raises; the process bounds its time and memory."""
    try:
        converted = _CONVERTERS[source.kind](source)
        text = converted.text
        fault = fault_of(text)
    except TooLargeError as error:
        return GrammarVerdict(needed=error.needed, found=error.found)
    except RecursionError:
        return GrammarVerdict(fault="it is nested too deep")
    except MemoryError:
        return GrammarVerdict(fault="it takes too much memory")
    except Exception as error:  # noqa: BLE001 (converters raise any type)
        return GrammarVerdict(fault=_shortened(str(error) or type(error).__name__))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a Rust panic, which derives from BaseException only
            raise
        return GrammarVerdict(fault=_shortened(f"the grammar library failed: {error}"))
    return GrammarVerdict(text) if fault is None else GrammarVerdict(fault=_shortened(converted.explained(fault)))


def fault_of(text: str) -> str | None:
    """Compile a grammar in the library's form and make its first mask; return what is wrong, or None.

    Uses bytes as tokens, not the target's tokenizer. A compiled form of too much memory is a ``TooLargeError``.
    """
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    tokens, limits = _bytes_as_tokens(), parser_limits()
    before = _allocated_bytes()
    matcher = LLMatcher(tokens, text, log_level=0, limits=limits)
    if (compiled := _allocated_bytes() - before) > MAX_COMPILED_BYTES:
        needed = f"a compiled form of at most {MAX_COMPILED_BYTES // 2**20} MiB"
        raise TooLargeError(needed, f"{compiled / 2**20:.1f} MiB; shorten its arrays, or leave properties out")
    if not matcher.is_error():
        matcher.compute_bitmask()  # follows forced text to its end, as a verifier would
        fault = matcher.get_error() if matcher.is_error() else None
        return "there is no text that it describes" if fault and fault.startswith("NoExtension") else fault
    wrong, messages = LLMatcher.validate_grammar_with_warnings(text, limits=parser_limits())
    return " ".join(messages) if wrong else None  # special tokens are no bytes: valid with a tokenizer


class _Allocations(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _allocated_bytes() -> int:
    """Return the bytes this process has allocated: exact with a single thread; 0 without glibc 2.33."""
    try:
        messages = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return 0
    messages.restype = _Allocations
    found = messages()
    return int(found.uordblks + found.hblkhd)


@cache
def _bytes_as_tokens() -> "LLTokenizer":
    from llguidance import LLTokenizer  # noqa: PLC0415 (takes a while)

    return LLTokenizer("byte")


@cache
def parser_limits() -> "LLParserLimits":
    """Return limits on compiling and on each mask, each about 20 ms at the library's stated speeds."""
    from llguidance import LLParserLimits  # noqa: PLC0415 (takes a while)

    return LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def _json_schema(source: GrammarSource) -> _Converted:
    schema = json.loads(source.text)
    if not isinstance(schema, dict):
        raise ValueError("a JSON schema is an object")  # noqa: TRY004 (a user's error, like any other fault)
    blanks = None if source.whitespace_pattern is None else texts.ascii_classes(source.whitespace_pattern)
    if blanks is not None:
        check_regex(blanks)
    checked = json.dumps(followed(schema), allow_nan=False)  # two parsers may read the user's text differently
    return _Converted(texts.of_json_schema(checked, flexible=source.flexible, whitespace_pattern=blanks))


def _regex(source: GrammarSource) -> _Converted:
    pattern = texts.ascii_classes(source.text)
    check_regex(pattern)
    widths = texts.shown_widths(source.text)
    return _Converted(texts.of_regex(pattern), lambda fault: explained_expression(source.text, widths, fault))


def _choice(source: GrammarSource) -> _Converted:
    return _Converted(texts.of_choices(json.loads(source.text)))


def _rules(source: GrammarSource) -> _Converted:
    if not texts.is_lark(source.text):
        rules = lark_of_gbnf(source.text)
        check_rules(rules, check_schema)
        return _Converted(texts.of_lark(rules))
    check_rules(source.text, check_schema)
    written = replace_json(source.text, lambda schema: texts.compact(followed(schema)))
    return _Converted(texts.of_lark(written.text), written.explained)


_CONVERTERS: Mapping[GrammarKind, Callable[[GrammarSource], _Converted]] = {
    GrammarKind.JSON_SCHEMA: _json_schema,
    GrammarKind.REGEX: _regex,
    GrammarKind.CHOICE: _choice,
    GrammarKind.RULES: _rules,
}


def _shortened(text: str) -> str:
    return text[:_MAX_FAULT_CHARS]

"""Grammars: constructs that count, repeat, refer or nest, at sizes that hurt, in each field that takes one."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.hostile.cases import MODEL, TEXT_BYTES, Case, Target
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_MANY = 10**9
_ITEM = {"type": "integer"}
Schema = dict[str, Any]


def _products(keyword: str, depth: int, count: int) -> Schema:
    schema: Schema = dict(_ITEM)
    for _ in range(depth):
        schema = {"type": "array", "items": schema, keyword: count}
    return schema


def _doubling(depth: int) -> Schema:
    """Each definition names the next one twice: 2^depth in all."""
    each = {
        f"d{i}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "ab"}}
        for i in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**each, f"d{depth}": _ITEM}}


def _nested(depth: int) -> Schema:
    schema: Schema = dict(_ITEM)
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def _all_of(depth: int) -> Schema:
    any_of = [{"properties": {f"p{i}": {"type": kind}}} for i in range(depth) for kind in ("string", "integer")]
    return {"type": "object", "allOf": [{"anyOf": any_of[2 * i : 2 * i + 2]} for i in range(depth)]}


_WIDE = TEXT_BYTES // 40
SCHEMAS: Mapping[str, Schema] = {
    **{
        f"{word} 10^9": {"type": "array", "items": _ITEM, word: _MANY}
        for word in ("maxItems", "minItems", "maxContains", "minContains")
    },
    **{f"{word} 10^9": {"type": "string", word: _MANY} for word in ("maxLength", "minLength")},
    **{f"{word} 10^9": {"type": "object", word: _MANY} for word in ("maxProperties", "minProperties")},
    "maxItems 200,000": {"type": "array", "items": _ITEM, "maxItems": 200_000},
    "minItems 2^63": {"type": "array", "items": _ITEM, "minItems": 2**63},
    "maxItems 1e308": {"type": "array", "items": _ITEM, "maxItems": 1e308},
    "maxItems of objects": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": _ITEM}},
        "maxItems": _MANY,
    },
    "maxItems with prefixItems": {"type": "array", "prefixItems": [_ITEM] * 3, "items": _ITEM, "maxItems": _MANY},
    "maxItems without items": {"type": "array", "maxItems": _MANY},
    "maxItems inside anyOf": {"anyOf": [{"type": "null"}, {"type": "array", "items": _ITEM, "maxItems": _MANY}]},
    "maxItems behind $ref": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": _ITEM, "maxItems": _MANY}}},
    "products of minItems": _products("minItems", 5, 1000),
    "products of maxItems": _products("maxItems", 4, 1000),
    "products with lengths": {"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 100_000}},
    "multipleOf": {"type": "integer", "multipleOf": _MANY + 7},
    "multipleOf small": {"type": "number", "multipleOf": 1e-300},
    "minimum and maximum": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    "minimum 1e308": {"type": "number", "minimum": 1e308},
    "pattern {10^9}": {"type": "string", "pattern": "^a{1000000000}$"},
    "pattern of products": {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"},
    "pattern without bound": {"type": "string", "pattern": "(a|b)*a(a|b){40}"},
    "patternProperties": {"type": "object", "patternProperties": {f"^a{i}{{1000}}": _ITEM for i in range(_WIDE)}},
    "properties 64 KiB": {"type": "object", "properties": {f"p{i}": _ITEM for i in range(TEXT_BYTES // 30)}},
    "required 64 KiB": {
        "type": "object",
        "properties": {f"p{i}": _ITEM for i in range(_WIDE)},
        "required": [f"p{i}" for i in range(_WIDE)],
    },
    "enum 64 KiB": {"enum": list(range(TEXT_BYTES // 8))},
    "enum of objects": {"enum": [{f"k{i}": i} for i in range(TEXT_BYTES // 18)]},
    "const 60 KiB": {"const": "a" * 60_000},
    "anyOf 64 KiB": {"anyOf": [{"type": "string", "maxLength": i + 1} for i in range(_WIDE)]},
    "oneOf 64 KiB": {"oneOf": [{"type": "string", "maxLength": i + 1} for i in range(_WIDE)]},
    "oneOf of objects": {
        "oneOf": [{"type": "object", "properties": {f"p{i}": _ITEM}} for i in range(TEXT_BYTES // 70)]
    },
    "allOf products": _all_of(20),
    "allOf 64 KiB": {"allOf": [{"type": "string", "maxLength": i + 1} for i in range(_WIDE)]},
    "$ref to itself": {"$ref": "#"},
    "$ref in a ring": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "$ref that doubles": _doubling(30),
    "$ref of a chain": {"$ref": "#/$defs/d0", "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1500)}},
    "nested 60": _nested(60),
    "nested 400": _nested(400),
    "prefixItems 64 KiB": {"type": "array", "prefixItems": [_ITEM] * (TEXT_BYTES // 22)},
    "format": {"type": "string", "format": "a" * 60_000},
    "not": {"not": {"not": {"type": "array", "items": _ITEM, "maxItems": _MANY}}},
    "additionalProperties": {"type": "object", "additionalProperties": _products("maxItems", 3, 1000)},
    "dependentSchemas": {"type": "object", "dependentSchemas": {f"p{i}": _nested(3) for i in range(200)}},
    "surrogates": {"enum": ["\ud800" * 1000]},
    "integers beyond 2^53": {"enum": [[2**53 + i] for i in range(TEXT_BYTES // 22)]},
    "formats that nobody knows": {"properties": {f"p{i}": {"format": f"f{i}"} for i in range(TEXT_BYTES // 40)}},
    "x-guidance, white space": {"x-guidance": {"whitespace_pattern": "((( {9}?){9}?){9}?)+" * 3000}, "type": "object"},
    "x-guidance, separators": {"x-guidance": {"item_separator": ",\\s{1,9999}"}, "type": "array", "items": _ITEM},
    "x-guidance": {"x-guidance": {"whitespace_pattern": "[ ]{1000000000}"}, "type": "object"},
}
REGEXES: Mapping[str, str] = {
    "{10^9}": "a{1000000000}",
    "{0,10^9}": "a{0,1000000000}",
    "{10^5}": "[a-z]{100000}",
    "products": "((a{1000}){1000}){1000}",
    "products of optionals": "((a?){1000}){1000}",
    "nested stars": "((a*)*)*b",
    "window": "(a|b)*a(a|b){40}",
    "alternatives 64 KiB": "|".join(f"w{i}" for i in range(TEXT_BYTES // 7)),
    "alternatives with windows": "|".join(f".*{c}.{{20}}" for c in "abcdefghijklmnop"),
    "classes": "[\\w\\W]{50000}",
    "unicode classes": "\\p{L}{3000}",
    "groups 30,000": "(" * 30_000 + "a" + ")" * 30_000,
    "look ahead": "(?=a{1000000})b",
    "look ahead, nested": "(?=(?=(?=.*a).*b).*c)" * 100,
    "back reference": "(a)\\1{1000000}",
    "case folded": "(?i)" + "straße" * 9000,
    "dots 60 KiB": "." * 60_000,
    "unclosed": "[" * 60_000,
}
LARK: Mapping[str, str] = {
    "{10^9}": 'start: "a"~1000000000',
    "{0,10^9}": 'start: "a"~0..1000000000',
    "braces 10^9": 'start: "a"{1000000000}',
    "braces 0,10^9": "start: x{0,1000000000}\nx: /[a-z]/",
    "products": 'start: a{1000}\na: b{1000}\nb: c{1000}\nc: "x"',
    "products in place": 'start: ((("a"{100}){100}){100}){100}',
    "terminal products": 'start: A\nA: ("a"{1000}){1000}',
    "regex {10^9}": "start: /a{1000000000}/",
    "regex products": "start: /((a{1000}){1000}){1000}/",
    "alternatives 64 KiB": "start: " + "|".join(f'"w{i}"' for i in range(TEXT_BYTES // 9)),
    "rules 64 KiB": "start: r0\n"
    + "\n".join(f"r{i}: r{i + 1}" for i in range(TEXT_BYTES // 14))
    + f"\nr{TEXT_BYTES // 14}: /a/",
    "doubling": "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + "\nr60: /a/",
    "recursion": 'start: start start start | "a" |',
    "ambiguous": 'start: a*\na: b*\nb: "a"* | a',
    "optionals": "start: " + '"a"? ' * 10_000,
    "brackets": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "%json": "start: obj\nobj: %json " + json.dumps({"type": "array", "items": _ITEM, "maxItems": _MANY}),
    "%json 300 times": "start: "
    + " ".join(f"j{i}" for i in range(300))
    + "\n"
    + "\n".join(f"j{i}: %json " + json.dumps(_products("maxItems", 1, 3000)) for i in range(300)),
    "%regex": 'start: R\nR: %regex { "substring_words": ' + json.dumps("word " * 10_000) + "}",
    "%ignore": "start: A\nA: /a/\n%ignore /(a|b)*a(a|b){40}/",
    "and, not": "start: A\nA: /(a|b)*a(a|b){30}/ & ~/(a|b)*b(a|b){30}/",
    "%json without JSON": "start: a\na: " + "%json " * 10_000,
    "%json of formats": "start: "
    + " ".join(f"j{i}" for i in range(900))
    + "".join(f'\nj{i}: %json {{"format": "f{i}"}}' for i in range(900)),
    "%json in quotes": 'start: "' + "%json {} " * 7_000 + '"',
    "max_tokens": "start: a\na[max_tokens=1000000000]: /.*/",
    "attributes": "start: a\n" + "a[stop=/(a|b)*a(a|b){30}/]: /.*/",
}
GBNF: Mapping[str, str] = {
    "{10^9}": 'root ::= "a"{1000000000}',
    "{0,10^9}": "root ::= [a-z]{0,1000000000}",
    "{10^9,}": "root ::= [a-z]{1000000000,}",
    "products": 'root ::= a{1000}\na ::= b{1000}\nb ::= "x"{1000}',
    "products in place": 'root ::= ((("a"{100}){100}){100}){100}',
    "alternatives 64 KiB": "root ::= " + " | ".join(f'"w{i}"' for i in range(TEXT_BYTES // 11)),
    "doubling": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + '\nr60 ::= "a"',
    "recursion": 'root ::= root root root | "a" | ""',
    "classes": "root ::= " + "[^a]" * 15_000,
    "brackets": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "comments": "root ::= [a]\n" + "#" * 60_000,
}
CHOICES: Mapping[str, list[str]] = {
    "10^5 texts": ["a"] * 100_000,
    "10^4 long texts": ["b" * 300 + str(i) for i in range(10_000)],
    "64 KiB of words": [f"w{i}" for i in range(TEXT_BYTES // 10)],
    "one of 4 MB": ["c" * 4_000_000],
    "empty texts": [""] * 1000,
}
_SHORT = frozenset(
    {
        "guided_json: maxItems 200,000",
        "guided_json: maxItems 10^9",
        "response_format: minLength 10^9",
        "structured_outputs.json: products of minItems",
        "tools: maxItems 10^9",
        "guided_json: properties 64 KiB",
        "guided_json: $ref that doubles",
        "guided_grammar (Lark): %json",
        "guided_grammar (Lark): products",
        "guided_grammar (GBNF): {10^9}",
        "guided_regex: products",
        "guided_regex: {0,10^9}",
        "guided_choice: 10^5 texts",
    }
)


def _tool(schema: Schema) -> Schema:
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


SCHEMA_FIELDS: Mapping[str, Callable[[Schema], Schema]] = {
    "guided_json": lambda schema: {"guided_json": schema},
    "response_format": lambda schema: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    },
    "structured_outputs.json": lambda schema: {"structured_outputs": {"json": schema}},
    "guided_grammar (%json)": lambda schema: {"guided_grammar": "start: o\no: %json " + json.dumps(schema)},
    "tools": lambda schema: {"tools": [_tool(schema)], "tool_choice": "required"},
}
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def cases() -> Iterator[Case]:
    """Every construct in every field that takes it."""
    for name, schema in SCHEMAS.items():
        for place, around in SCHEMA_FIELDS.items():
            yield _case(f"{place}: {name}", around(schema), _CHAT)
    texts = {
        "guided_regex": ("guided_regex", REGEXES),
        "guided_grammar (Lark)": ("guided_grammar", LARK),
        "guided_grammar (GBNF)": ("guided_grammar", GBNF),
        "guided_choice": ("guided_choice", CHOICES),
    }
    for place, (key, values) in texts.items():
        for name, value in values.items():
            yield _case(f"{place}: {name}", {key: value}, _COMPLETIONS)
            newer = {"structured_outputs": {key.removeprefix("guided_"): value}}
            yield _case(f"structured_outputs, {place}: {name}", newer, _COMPLETIONS)


def request_with(fields: Schema, route: str) -> bytes:
    """A sound request with these fields and one token to be said."""
    prompt: Schema = {"messages": [{"role": "user", "content": "a"}]} if route == _CHAT else {"prompt": "a"}
    return json.dumps({"model": MODEL, "max_tokens": 1, **prompt, **fields}).encode()


def _case(name: str, fields: Schema, route: str) -> Case:
    async def drive(target: Target) -> Answer:
        body = request_with(fields, route)
        return await target.post(route, (body,), len(body))

    return Case(Family.GRAMMARS, name, drive, name in _SHORT)

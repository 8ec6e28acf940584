"""Which repetitions of expressions and rules are refused before they are compiled."""

import pytest

from outrider.grammar.repeats import TooLargeError, check_regex, check_rules, postorder
from outrider.grammar.schema_bounds import check_schema

BILLION = 10**9


def rules(text: str) -> None:
    check_rules(text, check_schema)


@pytest.mark.parametrize(
    "pattern",
    [
        f"a{{{BILLION}}}",
        f"a{{{BILLION},}}",
        f"a{{ {BILLION} }}",
        f"[a-z]{{{BILLION}}}",
        f"\\p{{L}}{{{BILLION}}}",
        f"[]{{}}]{{{BILLION}}}",
        f"(?x) # [ \n a{{{BILLION}}}",
        f"(?sx-i) [ ] # [ \n a{{{BILLION}}}",
        "a{" + "9" * 5_000 + "}",
        "((a{100}){100}){100}",
        "((a{1000}b?){1000})",
        "(a{3,}){3000}(b{4000}){20}",
        "(" * 50 + "a" + "){2}" * 50,
        "a{4000}" * 20,
    ],
)
def test_an_expression_that_repeats_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(TooLargeError, match=r"needs .*(10000|65536).*found"):
        check_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a{10000}",
        f"^.{{0,{BILLION}}}$",
        f"a{{0,{BILLION}}}",
        f"a{{,{BILLION}}}",
        f"(ab|c){{2,{BILLION}}}b",
        f"(.{{1,{BILLION}}}a){{0,{BILLION}}}",
        r"\d{3}-\d{4}",
        r"([a-z]{1,63}\.){1,100}",
        r"\x{10FFFF}\p{L}{3}",
        r"a\{1000000\}",
        "[{}100000{9999}]",
        "(a*)+?{2}",
        "({1,2}",
        "a" * 65_000,
        "(" * 60_000,
        ")" * 60_000,
    ],
)
def test_an_ordinary_or_malformed_expression_is_left_to_the_library(pattern: str) -> None:
    check_regex(pattern)


@pytest.mark.parametrize(
    "text",
    [
        f'start: x{{{BILLION}}}\nx: "a"',
        f'start: x~{BILLION}\nx: "a"',
        f'start: x ~ {BILLION}..{BILLION}\nx: "a"',
        f'start: ("a" | "b"){{{BILLION}}}',
        f"start: X\nX: /a/{{{BILLION}}}",
        f"start: /[a-z]{{{BILLION}}}/i",
        f'start: x\nx[capture="y", stop=":"]: "a"{{{BILLION}}}',
        f'start: %json {{"type": "array", "maxItems": {BILLION}}}',
        f'start: %json\n\n{{"properties": {{"a": {{"minItems": {BILLION}}}}}}} "b"',
        f'start: "a" // comment\n%ignore /b{{{BILLION}}}/',
        f'%llguidance {{}}\nstart: ("a"{{{BILLION}}})*',
        'start: a{1000}\na: b{1000}\nb: c{1000}\nc: "x"',
        "start: ((X{100}){200}){300}\nX: /a/",
        "start: A\nA: B{1000}\nB: C{1000}\nC: /x/",
        "start: A\nA: /[a-z]{1,600}/ B{600}\nB: /x{600}/",
        "start: T0\n" + "\n".join(f"T{i}: T{i + 1} T{i + 1}" for i in range(30)) + '\nT30: "a"',
        '\nT30: "a"\n' + "\n".join(f"T{i}: T{i + 1} T{i + 1}" for i in range(29, -1, -1)) + "\nstart: T0",
    ],
)
def test_rules_that_repeat_too_much_are_refused(text: str) -> None:
    with pytest.raises(TooLargeError, match=r"needs .*(4096|10000|65536|1000000).*found"):
        rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'start: start "a"{3} | "b"',
        f'start: x{{0,{BILLION}}}\nx: "a"',
        f'start: x ~ 0..{BILLION}\nx: "a"',
        f'start: "x{{{BILLION}}}"',
        f'start: "a" // x{{{BILLION}}}',
        'start: expr\nexpr: term (("+" | "-") term)*\nterm: NUMBER | "(" expr ")"\nNUMBER: /[0-9]{1,20}/',
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(2000)) + '\nr2000: "a"',
        "start: T0\n" + "\n".join(f"T{i}: T{i + 1}" for i in range(2000)) + '\nT2000: "a"',
        'start: item{1000}\nitem: WORD{100}\nWORD: /[a-z]{1,60}/\n%json {"',
        "%json {" * 2_000,
        "a:" * 10_000 + "]:" * 10_000,
        "start: A\nA: B\nB: A",
    ],
)
def test_ordinary_or_malformed_rules_are_left_to_the_library(text: str) -> None:
    rules(text)


def test_each_node_comes_behind_what_it_refers_to() -> None:
    graph = {"a": "bc", "b": "d", "c": "d", "d": "", "e": "ae", "f": "g", "g": "f"}
    order = list(postorder("ef", lambda node: graph[node]))
    assert sorted(order) == sorted(graph)
    for node, children in graph.items():
        if node not in "efg":
            assert all(order.index(child) < order.index(node) for child in children)
    assert order.index("a") < order.index("e")

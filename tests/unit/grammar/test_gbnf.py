"""GBNF as llama.cpp reads it: what a grammar describes can be written, and nothing else."""

import pytest

from outrider.grammar.gbnf import lark_of_gbnf
from outrider.grammar.places import GrammarSyntaxError
from outrider.grammar.texts import of_lark
from outrider.grammar.validating import GrammarKind, GrammarSource, validate
from tests.unit.grammar.test_validating import writes

ARITHMETIC = r"""
root  ::= (sum "=" gap factor "\n")+ # equations
sum   ::= factor ([-+*/] factor)*
factor ::= name | number | "(" gap sum ")" gap
name  ::= [a-z] [a-z0-9_]* gap
number ::= [0-9]+ gap
gap   ::= [ \t\n]*
"""
JSON = r"""
root   ::= Object
Value  ::= Object | Array | String | Number | ("true" | "false" | "null") ws
Object ::=
  "{" ws (
    String ":" ws Value
    ("," ws String ":" ws Value)*
  )? "}" ws
Array  ::= "[" ws ( Value ("," ws Value)* )? "]" ws
String ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws
Number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
WRITES = {
    "one text": ('root ::= "yes"', ["yes"], ["no", "yess"]),
    "letters, then one of them": ('root ::= name "s"\nname ::= [a-z]+', ["as", "ss", "sssas"], ["s", "a"]),
    "a text that a class has, too": ('root ::= "if" | [a-z] [a-z] [a-z]', ["if", "ifx", "abc"], ["ab", "ifxy"]),
    "blanks, then one of them": (
        'root ::= ident "\\n" "."\nident ::= "x" ws\nws ::= [ \\t\\n]*',
        ["x\n.", "x \n\t\n."],
        ["x.", "x ."],
    ),
    "escapes": (r'root ::= "\x41" "\u00e9" "\U0001F600" "\"\\\n\t\r"', ['Aé😀"\\\n\t\r'], ["Ae"]),
    "escapes in a class": (r'root ::= [\-a\]\\\x41-\x43]+ "!"', ["-a]\\ABC!"], ["b!", "!"]),
    "a hyphen at an end": ("root ::= [a-] [-b]", ["--", "ab"], ["bb"]),
    "any character": ('root ::= "a" . "b"', ["axb", "a\nb", "aéb", "a.b"], ["ab", "axxb"]),
    "not one of these": (r"root ::= [^a-c\n]+", ["xyz", "é d"], ["a", "x\n"]),
    "counts": ('root ::= "ab"{2} [x]{1,2} "c"{0,} "d"?', ["ababx", "ababxxccd"], ["abx", "ababxxx", "ab ab"]),
    "nothing": ('root ::= "a" | b\nb ::= ', ["a", ""], ["b"]),
    "nothing first": ('root ::= "x" (| "y") ""', ["x", "xy"], ["y"]),
    "over lines": ('root ::= "a"\n  | "b"\n  |\n "c" "d"\n', ["a", "b", "cd"], ["c"]),
    "names of all kinds": (
        "root ::= a-b a_b A-B Ab aB 1st\na-b ::= [0]\na_b ::= [1]\nA-B ::= [2]\nAb ::= [3]\naB ::= [4]\n1st ::= [5]",
        ["012345"],
        ["543210"],
    ),
    "left recursion": ('root ::= root "+" [0-9] | [0-9]', ["1", "1+2+3"], ["+1"]),
    "arithmetic": (ARITHMETIC, ["x=y\n", "x = 1\n\n(a +b_2) *3=z\n"], ["x=y", "=\n"]),
    "JSON": (JSON, ['{"a": [1, -2.5e+7, "\\u00e9\\n"], "b": {"c": null}}', "{}"], ["[]", '{"a": "\n"}', "{a: 1}"]),
    "Japanese": ("root ::= [ぁ-ん]+ ([、。] [ァ-ヶ]+)*", ["ひらがな、カタカナ"], ["kana", "カ"]),
    "a comment": ('# first\nroot ::= "#" # then\n# last', ["#"], ["# then"]),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_is_described_can_be_written_and_nothing_else(what: str) -> None:
    grammar, texts, others = WRITES[what]
    assert validate(GrammarSource(GrammarKind.RULES, grammar)).is_valid
    lark = of_lark(lark_of_gbnf(grammar))
    assert [text for text in texts if not writes(lark, text)] == []
    assert [text for text in others if writes(lark, text)] == []


@pytest.mark.parametrize(
    ("grammar", "place", "needed"),
    [
        ("root ::= (", "line 1, column 11", "a closing bracket for the one of line 1, column 10"),
        ('root ::= ("a"\nb ::= "c"', "line 2, column 1", "a closing bracket for the one of line 1, column 10"),
        ('root ::= "a', "line 1, column 10", "each quote and bracket closed"),
        ('root ::= "a" b', "line 1, column 14", "a rule that is defined"),
        ('root ::= "a"\n  )', "line 2, column 3", "an opening bracket"),
        ('a ::= "x"', "line 1, column 10", "a rule root ::= ..."),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "a name that is not defined yet"),
        ("root ::= * ", "line 1, column 10", "something to repeat"),
        ('root ::= "a"**', "line 1, column 14", "something to repeat"),
        ('root ::= "a" | +', "line 1, column 16", "something to repeat"),
        ("root ::= [z-a]", "line 1, column 11", "a range that goes upwards"),
        ("root ::= []", "line 1, column 11", "characters in a class"),
        (r'root ::= "\q"', "line 1, column 11", "an escape such as"),
        (r'root ::= "ab\ud800"', "line 1, column 13", "an escape such as"),
        ("SELECT 1", "line 1, column 1", "a rule, such as root ::="),
        ("# nothing", "line 1, column 10", "a rule root ::= ..."),
        ('a: "x"', "line 1, column 1", "a rule, such as root ::="),
        ('root ::= "a" % "b"', "line 1, column 14", "rules such as"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(grammar: str, place: str, needed: str) -> None:
    with pytest.raises(GrammarSyntaxError) as caught:
        lark_of_gbnf(grammar)
    assert str(caught.value).startswith(f"{place}: needs ")
    assert needed in str(caught.value)

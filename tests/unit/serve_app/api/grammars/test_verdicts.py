"""Verdicts are remembered by their whole content, as far as memory is for them."""

from dataclasses import replace

from outrider.grammar.validating import GrammarKind, GrammarSource, GrammarVerdict
from serve_app.api.grammars.verdicts import VerdictCache, key_of

SOURCE = GrammarSource(GrammarKind.REGEX, "a")


def test_a_key_is_of_all_of_a_source_and_of_one_account() -> None:
    others = [
        replace(SOURCE, kind=GrammarKind.RULES),
        replace(SOURCE, text="b"),
        replace(SOURCE, flexible=False),
        replace(SOURCE, whitespace_pattern=""),
        replace(SOURCE, whitespace_pattern="None"),
        replace(SOURCE, text="\ud800"),
    ]
    keys = {key_of("", SOURCE), key_of("x", SOURCE), *(key_of("", other) for other in others)}
    assert len(keys) == len(others) + 2
    assert key_of("x", replace(SOURCE)) == key_of("x", SOURCE)


def test_the_least_recently_used_go_first() -> None:
    cache = VerdictCache(10_000)
    for name in (b"a", b"b"):
        cache.put(name, GrammarVerdict("x" * 3_000))
    assert cache.get(b"a") is not None
    cache.put(b"c", GrammarVerdict("x" * 3_000))
    assert cache.get(b"b") is None
    assert cache.get(b"a") is not None
    assert cache.used_bytes <= 10_000
    cache.put(b"a", GrammarVerdict("y"))
    assert cache.get(b"a") == GrammarVerdict("y")
    cache.put(b"d", GrammarVerdict("x" * 20_000))
    assert cache.used_bytes == 0

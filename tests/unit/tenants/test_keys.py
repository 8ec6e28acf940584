"""The file of API keys: what is read, whose a key is, and that no message tells one."""

import copy
import re
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.config.reading import parse_config
from outrider.contracts.errors import ConfigError
from outrider.tenants.keys import Keys, check_against, parse_keys, read_keys
from outrider.tenants.quotas import QuotaLimits

ALICE, BOB = "sk-alice-0123456789", "sk-bob-01234567890"
TEXT = f"""
keys:
  - {{name: alice, key: {ALICE}, requests_per_minute: 60.0, slo: {{default: slow, allowed: [slow, fast]}}}}
  - {{name: bob, sha256: {sha256(BOB.encode()).hexdigest()}, drafters: [lab]}}
"""


def keys() -> Keys:
    return parse_keys(TEXT, "test")


ASKED = (ALICE, BOB, ALICE[:-1], ALICE + "0", "", "ü", sha256(BOB.encode()).hexdigest())


def test_a_key_is_its_tenants_whether_it_is_kept_or_its_digest() -> None:
    found = [keys().tenant_of(key) for key in ASKED]
    assert [tenant and tenant.name for tenant in found] == ["alice", "bob", None, None, None, None, None]


def test_a_tenant_shows_no_key() -> None:
    assert ALICE not in repr(keys().tenants)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys: []", "keys needs a list"),
        ("", "configuration needs a mapping of keys"),
        (
            f"keys: [{{name: a, key: {ALICE}, sha256: {'a' * 64}}}]",
            r"keys\[0\].key needs a key, or sha256 of one, found 'both'",
        ),
        ("keys: [{name: a}]", "needs a key, or sha256 of one, found 'neither'"),
        (
            "keys: [{name: a, key: short}]",
            r"keys\[0\].key needs 16 to 512 printable characters, .* found 'one of 5 characters'",
        ),
        (f"keys: [{{name: a, key: {ALICE}}}, {{name: a, key: {BOB}}}]", "a different name for each key"),
        (f"keys: [{{name: a, key: {ALICE}}}, {{name: b, key: {ALICE}}}]", "a different key for each name"),
        (f"keys: [{{name: a, key: {ALICE}, requests_per_minute: 0.0}}]", "requests_per_minute needs"),
        (f"keys: [{{name: a, key: {ALICE}, max_choices: 65}}]", r"max_choices needs an integer in \[1, 64\], found 65"),
        (
            f"keys: [{{name: a, key: {ALICE}, slo: {{default: a, allowed: [b]}}}}]",
            r"slo.default needs one of allowed, found 'a'",
        ),
        (f"keys: [{{name: a, key: {ALICE}, speed: 3}}]", "known keys .* found 'speed'"),
        (f"keys: [{{name: a, key: {ALICE}, drafters: [3]}}]", r"keys\[0\].drafters\[0\] needs a short name, found 3"),
        (f"keys: [{{name: a, key: {ALICE}, drafters: 3}}]", r"keys\[0\].drafters needs a list or null, found 3"),
    ],
)
def test_what_is_wrong_is_said_without_telling_a_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        parse_keys(text, "test")
    assert "sk-" not in str(told.value)
    assert "short'" not in str(told.value)


DIGITS = "12345678901234567890"
SOUND: dict[str, list[dict[str, Any]]] = {
    "keys": [
        {"name": "alice", "key": ALICE, "requests_per_minute": 60.0, "slo": {"default": "slow", "allowed": ["slow"]}},
        {"name": "bob", "key": "sk_bob_01234567890", "drafters": ["lab"], "max_choices": 4},
        {"name": "carol", "key": DIGITS},
    ]
}
SECRETS: list[str] = [tenant["key"] for tenant in SOUND["keys"]]


def assert_tells_no_key(text: str) -> None:
    """Neither in its message, nor in the errors behind it, which a traceback shows."""
    try:
        check_against(parse_keys(text, "test"), ["slow"], ["lab"], "test")
    except ConfigError as error:
        told = "".join(traceback.format_exception(error))
        parts = {secret[start : start + 8] for secret in SECRETS for start in range(len(secret) - 7)}
        shown = [part for part in parts if part in told]
        assert not shown, (text, told)


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize(
    "form",
    [
        "keys:\n  - {}",
        "keys: {}",
        "{}",
        "{}: 1",
        "keys: [[{}]]",
        "keys: [{{{}: 1}}]",
        "keys: {{{}: 1, {}: 2}}",
        "keys: [{{name: {}}}]",
        "keys: [{{name: a, key: {}, max_choices: {}}}]",
        "keys: [{{name: a, key: {}, max_choices: 1.{}}}]",
        "keys: [{{name: a, key: {}, slo: {}}}]",
        "keys: [{{name: a, key: {}, slo: {{default: {}}}}}]",
        "keys: [{{name: a, key: {}, slo: {{default: slow, allowed: [{}]}}}}]",
        "keys: [{{name: a, key: {}, drafters: [{}]}}]",
        "keys: [{{name: a{0}, key: {0}}}, {{name: a{0}, key: {0}0}}]",
        "keys: *{}",
        "keys: &{} [&{} a]",
        "keys: !{} x",
        "keys: '{}",
        'keys: "\\q{}"',
        "keys: ''*{}' *'{}",
        "%TAG !{}! x",
    ],
)
def test_a_key_in_any_place_is_told_of_in_none(form: str, key: str) -> None:
    assert_tells_no_key(form.format(key, key))


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """A sound file with a node replaced, a piece cut out, or a line moved; or several of these."""
    document = copy.deepcopy(SOUND)
    nodes = st.sampled_from([*SECRETS, *SECRETS[:1], [SECRETS[0]], {SECRETS[1]: 1}, None, 7, 1.5, True, "name", [], {}])
    for _ in range(draw(st.integers(0, 2))):
        at: Any = document
        while True:
            place = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if draw(st.booleans()) or not isinstance(at[place], dict | list) or not at[place]:
                at[place] = draw(nodes)
                break
            at = at[place]
        if not isinstance(document["keys"], dict | list) or not document["keys"]:
            break
    text = yaml.safe_dump(document, default_flow_style=draw(st.sampled_from([None, True, False])), sort_keys=False)
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            start = draw(st.integers(0, len(text)))
            text = (
                text[:start]
                + draw(st.sampled_from(["", "*", "&", "!", '"', "'", "\t", "- ", ": ", "\n"]))
                + text[draw(st.integers(start, min(len(text), start + 40))) :]
            )
        elif lines := text.splitlines(keepends=True):
            line = lines.pop(draw(st.integers(0, len(lines) - 1)))
            lines.insert(draw(st.integers(0, len(lines))), line)
            text = "".join(lines)
    return text


@given(spoilt())
@settings(max_examples=100, deadline=None)
def test_whatever_is_done_to_a_file_no_error_tells_a_key(text: str) -> None:
    assert_tells_no_key(text)


def test_a_key_that_names_no_limits_has_some_and_may_say_that_it_has_none() -> None:
    text = f"keys: [{{name: a, key: {ALICE}}}, {{name: b, key: {BOB}, concurrent_responses: null, max_choices: 64}}]"
    usual, without = parse_keys(text, "test").tenants
    assert (usual.concurrent_responses, usual.max_choices) == (128, 16)
    assert (without.concurrent_responses, without.max_choices) == (None, 64)
    assert QuotaLimits.of(without).none


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"auth.keys_file needs a readable YAML file, found '/nowhere: No such file"):
        read_keys("/nowhere")


def test_names_that_the_configuration_does_not_have_are_found() -> None:
    check_against(keys(), ["slow", "fast"], ["lab"], "test")
    with pytest.raises(ConfigError, match=r"keys\[0\].slo needs names out of slow, found 'fast' \(in test\)"):
        check_against(keys(), ["slow"], ["lab"], "test")
    with pytest.raises(ConfigError, match=r"keys\[1\].drafters needs names out of none, found 'lab'"):
        check_against(keys(), ["slow", "fast"], [], "test")


def test_the_documented_examples_are_valid() -> None:
    how_to = Path(__file__).parents[3] / "docs" / "how-to"
    keys_md, trust_md = ((how_to / name).read_text(encoding="utf-8") for name in ("keys.md", "trust.md"))
    (shown,) = re.findall(r"```yaml\n(.*?)```", keys_md, re.DOTALL)
    (tenant,) = parse_keys(shown, "keys.md").tenants
    assert tenant.concurrent_responses == 8
    (groups,) = re.findall(r"```yaml\n(.*?)```", trust_md, re.DOTALL)
    assert [group.trusted for group in parse_config(groups, "trust.md").drafters] == [True, False]

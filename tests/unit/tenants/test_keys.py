"""The file of API keys: what is read, whose a key is, and that no message tells one."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

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
            r"keys\[0\].key needs 16 to 512 printable characters, .* found 'something else'",
        ),
        (f"keys: [{{name: a, key: {ALICE}}}, {{name: a, key: {BOB}}}]", "a different name for each key"),
        (f"keys: [{{name: a, key: {ALICE}}}, {{name: b, key: {ALICE}}}]", "a different key for each name"),
        (f"keys: [{{name: a, key: {ALICE}, requests_per_minute: 0.0}}]", "requests_per_minute needs"),
        (f"keys: [{{name: a, key: {ALICE}, max_choices: 65}}]", r"max_choices needs an integer in \[1, 64\], found 65"),
        (
            f"keys: [{{name: a, key: {ALICE}, slo: {{default: a, allowed: [b]}}}}]",
            r"slo.default needs one of allowed \(b\)",
        ),
        (f"keys: [{{name: a, key: {ALICE}, speed: 3}}]", "known keys"),
    ],
)
def test_what_is_wrong_is_said_without_telling_a_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        parse_keys(text, "test")
    assert "sk-" not in str(told.value)
    assert "short'" not in str(told.value)


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


def test_the_readmes_examples_are_valid() -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (shown,) = [snippet for snippet in snippets if snippet.startswith("keys:")]
    (tenant,) = parse_keys(shown, "README.md").tenants
    assert tenant.concurrent_responses == 8
    (groups,) = [snippet for snippet in snippets if "trust:" in snippet]
    assert [group.trusted for group in parse_config(groups, "README.md").drafters] == [True, False]

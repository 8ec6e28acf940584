import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.api_key import asking_for, take_key, without_key
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.tenants.keys import read_keys

KEY = "token-abc123"
KEYED = replace(Config(), auth=replace(Config().auth, keys_file="/keys.yaml"))


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTRIDER_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "config", "key"),
    [
        ({"OUTRIDER_API_KEY": "ours", "VLLM_API_KEY": "vllm"}, Config(), "ours"),
        ({"VLLM_API_KEY": "vllm"}, Config(), "vllm"),
        ({"OUTRIDER_API_KEY": ""}, Config(), None),
        ({"OUTRIDER_API_KEY": "a client's"}, KEYED, None),
    ],
    ids=["both", "vllm", "empty", "a file of keys"],
)
def test_a_key_of_the_environment_is_taken_out_of_it(
    variables: dict[str, str], config: Config, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert take_key(None, config) == key
    assert take_key(None, config) is None


def test_a_given_key_comes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_API_KEY", "another")
    assert take_key(KEY, Config()) == KEY
    assert take_key(None, Config()) is None


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 513, "a\n"], ids=["empty", "space", "letter", "long", "line"])
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^--api-key needs 1 to 512 printable characters .*, found 'something else'$"
    ):
        take_key(key, Config())


def test_one_key_beside_a_file_of_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--api-key needs no auth\.keys_file beside it, found 'both'$"):
        take_key(KEY, KEYED)


def test_ingresses_get_a_digest_in_a_file_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with asking_for(KEY, Config()) as config:
        assert config.auth.keys_file is not None
        file = Path(config.auth.keys_file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert KEY not in file.read_text()
        keys = read_keys(str(file))
        assert keys.tenant_of("another") is None
        tenant = keys.tenant_of(KEY)
        assert tenant is not None
        assert (tenant.requests_per_minute, tenant.concurrent_responses, tenant.max_choices) == (None, None, 64)
    assert not file.exists()
    with asking_for(None, KEYED) as config:
        assert config is KEYED


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (
            ["python", "outrider", "serve", "--api-key", KEY, "--port", "1"],
            ["python", "outrider", "serve", "--port", "1"],
        ),
        (["python", "-m", "cluster.cli", "serve", f"--api-key={KEY}"], ["python", "-m", "cluster.cli", "serve"]),
        (["outrider", "serve", "--served-model-name", KEY], ["outrider", "serve", "--served-model-name", KEY]),
    ],
    ids=["two words", "one word", "another flag's"],
)
def test_the_key_leaves_the_arguments(given: list[str], kept: list[str]) -> None:
    assert without_key(given, KEY) == kept

"""A replica takes over reloadable settings whole or not at all; one that only starts says why it cannot."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from outrider.config.reading import load_config, parse_config
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from serve_app.reloadable_settings import ReloadableSettings

BUILT = parse_config("limits: {max_output_tokens: 100}", "text")


class Replica:
    """What holds in it; it refuses more than 1,000 tokens."""

    def __init__(self) -> None:
        self.config, self.refused = BUILT, list[bool]()
        self._light = ReloadableSettings(BUILT, self.refused.append)

    def take(self, light: Mapping[str, Any]) -> int:
        """As Serve calls it; how long a response may be from now on."""
        asyncio.run(self._light.take(light, self._change))
        return self.config.limits.max_output_tokens

    def say_again(self) -> None:
        """As for Serve's probe."""
        self._light.say_again()

    async def _change(self, config: Config) -> None:
        if config.limits.max_output_tokens > 1000:
            raise RuntimeError("too many")
        self.config = config


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    return [(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records]


def test_what_is_not_named_is_as_it_was_built(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    replica = Replica()
    assert replica.take({"limits": {"max_output_tokens": 200}}) == 200
    assert events(caplog) == [], "it only starts"
    assert replica.take({"admission": {"enabled": False}}) == 100
    changed = {"admission.enabled": False, "limits.max_output_tokens": 100}
    assert events(caplog) == [("settings_taken", {"changed": changed})]
    assert replica.refused == [False, False]


@pytest.mark.parametrize("wrong", [{"limits": {"max_output_tokens": 0}}, {"limits": {"max_output_tokens": 2000}}])
def test_one_that_runs_keeps_what_it_has_and_says_so(
    wrong: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica()
    replica.take({"limits": {"max_output_tokens": 200}})
    assert replica.take(wrong) == 200
    (name, fields), *_ = events(caplog)
    assert name == "settings_refused"
    assert "max_output_tokens" in fields["reason"] or "too many" in fields["reason"]
    assert replica.take(wrong) == 200
    replica.say_again()
    assert replica.refused == [False, True, True, True]
    assert replica.take({}) == 100, "Serve hands over the next ones as ever"
    assert replica.refused == [False, True, True, True, False]


def test_one_that_starts_with_them_does_not_come_up() -> None:
    with pytest.raises(ConfigError, match=r"verifiers"):
        Replica().take({"verifiers": {"threads": 2}})
    with pytest.raises(RuntimeError, match="too many"):
        Replica().take({"limits": {"max_output_tokens": 2000}})
    assert load_config().limits.max_output_tokens > 1000

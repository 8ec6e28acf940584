"""Which settings are light: every one of them reaches what runs, and nothing else does."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from outrider.config.reading import dumped, load_config, parse_config
from outrider.config.reloadable import COUNTS, RELOADABLE, reloadable_of, rest_of, with_reloadable
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from serve_app.api.service import ServiceSettings
from serve_app.coordination.settings import CoordinatorSettings, coordinator_settings

# Another valid value of each.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "model": {"override_generation_config": {"temperature": 0.7}},
    "speculation": {
        "policy": "cheapest",
        "protocols": ["dsd"],
        "modes": ["none"],
        "k_max": 8,
        "window": 2,
        "lookup_window": 0,
        "drafts_ahead": False,
    },
    "slo": {
        "classes": [{"name": "best_effort", "tokens_per_s": 0.0}, {"name": "new", "tokens_per_s": 3.0}],
        "default": "speed_2",
        "objectives": {"chat": "best_effort"},
    },
    "scheduling": {"first_token_s": 2.0},
    "admission": {
        "enabled": False,
        "max_load": 0.5,
        "max_wait_s": 20.0,
        "best_effort_max_wait_s": 200.0,
    },
    "limits": {
        "max_concurrent_generations": 5,
        "max_queued_generations": 6,
        "max_output_tokens": 100,
        "max_body_mib": 2,
        "drafter_deadline_s": 4.0,
        "first_chunk_deadline_s": 500.0,
        "drain_s": None,
    },
    "auth": {"reads": "key"},
    "http": {
        "keep_alive_s": None,
        "cors_origins": ["https://my.page"],
        "allowed_hosts": ["a"],
        "trusted_proxies": ["10.0.0.0/8"],
        "strict_fields": True,
    },
    "tracing": {"sample_ratio": 1.0},
}
EACH = [(section, name) for section, names in RELOADABLE.items() for name in names]


def changed(section: str, name: str) -> dict[str, dict[str, Any]]:
    return {section: {name: OTHERS[section][name]}}


def keyed() -> Config:
    """With keys, so that what is read of them matters."""
    return parse_config("auth: {keys_file: /keys.yaml}", "text")


def pieces(config: Config) -> tuple[ServiceSettings, CoordinatorSettings]:
    return ServiceSettings.from_config(config), coordinator_settings(config)


@pytest.mark.parametrize(("section", "name"), EACH)
def test_each_reaches_an_ingress_or_a_coordinator_that_runs_as_if_it_were_built_with_it(
    section: str, name: str
) -> None:
    old = keyed()
    new = with_reloadable(old, changed(section, name))
    (service, coordinator), (other_service, other_coordinator) = pieces(old), pieces(new)
    assert (service, coordinator.generations) != (other_service, other_coordinator.generations)
    assert service.with_reloadable(new) == other_service
    assert coordinator.generations.with_reloadable(new) == other_coordinator.generations


@pytest.mark.parametrize(("section", "name"), EACH)
def test_none_is_of_what_cannot_be_replaced(section: str, name: str) -> None:
    """Whatever of a coordinator is not its generations' is the same, but for whom ingresses trace."""
    old = keyed()
    new = with_reloadable(old, changed(section, name))
    ours, others = pieces(old)[1], pieces(new)[1]
    assert replace(others, generations=ours.generations, tracing=ours.tracing) == ours
    assert others.generations.with_reloadable(old) == ours.generations
    assert pieces(new)[0].with_reloadable(old) == pieces(old)[0]
    assert rest_of(new) == rest_of(old)


def every_setting(config: Config) -> list[tuple[str, str]]:
    return [
        (one.name, inner.name)
        for one in fields(config)
        if is_dataclass(section := getattr(config, one.name))
        for inner in fields(section)
    ]


def test_every_setting_is_of_one_kind() -> None:
    config = load_config()
    known = set(every_setting(config))
    assert set(EACH) <= known
    counts = {(section, name) for section, names in COUNTS.items() for name in names}
    assert counts <= known
    assert not counts & set(EACH)
    rest = rest_of(config)
    left = {(section, name) for section, values in rest.items() if isinstance(values, dict) for name in values}
    assert left == known - counts - set(EACH)
    assert rest["drafters"] == dumped(config)["drafters"]


def test_all_light_settings_come_back_as_json_and_change_nothing() -> None:
    fitting: Mapping[str, Mapping[str, Any]] = {
        "slo": {"default": "new"},
    }
    config = with_reloadable(keyed(), {name: {**values, **fitting.get(name, {})} for name, values in OTHERS.items()})
    assert with_reloadable(keyed(), json.loads(json.dumps(reloadable_of(config)))) == config
    assert with_reloadable(config, {}) == config


def test_another_count_is_no_other_application() -> None:
    more = parse_config("{verifiers: {count: 3}, ingress: {count: 2, autoscaling: {min: 1, max: 4}}}", "text")
    assert rest_of(more) == rest_of(load_config())
    assert rest_of(parse_config("verifiers: {threads: 2}", "text")) != rest_of(load_config())


@pytest.mark.parametrize(
    ("light", "told"),
    [
        (
            {"limits": {"verifier_deadline_s": 20.0}},
            r"user_config\.limits needs only reloadable settings \(max_concurrent_gen",
        ),
        (
            {"verifiers": {"count": 2}},
            r"user_config needs sections with reloadable settings \(model, .*found 'verifiers'",
        ),
        ({"limits": {"body_deadline_s": 20.0}}, r"body_deadline_s is no setting any more: it is 60 s"),
        ({"limits": 3}, r"user_config\.limits needs a mapping of settings"),
        (3, "user_config needs a mapping of sections"),
        ({"limits": {"max_output_tokens": 0}}, r"limits\.max_output_tokens needs .*found 0 \(in user_config\)"),
        ({"limits": {"first_chunk_deadline_s": 10.0}}, r"first_chunk_deadline_s needs at least verifier_deadline_s"),
        ({"slo": {"default": "nobody"}}, r"slo\.default needs one of"),
        ({"admission": {"max_wait_s": 400.0}}, r"admission\.max_wait_s needs less than limits\.first_chunk_deadline_s"),
    ],
)
def test_what_is_not_light_or_not_valid_is_refused(light: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        with_reloadable(load_config(), light)

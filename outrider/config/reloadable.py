"""Settings that a running application takes over without a restart. Pure.

*Light* settings reach running replicas as Serve's ``user_config``. *Counts* start or end replicas and leave the others
alone. Any other change restarts every replica. A response keeps the settings it began with.
"""

from collections.abc import Mapping
from typing import Any

from outrider.config.reading import build_config, dumped
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError

ReloadableFields = Mapping[str, Mapping[str, Any]]  # values by section and field, as in the file

RELOADABLE: Mapping[str, tuple[str, ...]] = {
    "model": ("override_generation_config",),
    "speculation": (
        "policy",
        "protocols",
        "modes",
        "k_max",
        "window",
        "lookup_window",
        "drafts_ahead",
    ),
    "slo": ("classes", "default", "objectives"),
    "scheduling": ("first_token_s",),
    "admission": ("enabled", "max_load", "max_wait_s", "best_effort_max_wait_s"),
    "limits": (
        "max_concurrent_generations",
        "max_queued_generations",
        "max_output_tokens",
        "max_body_mib",
        "drafter_deadline_s",
        "first_chunk_deadline_s",
        "drain_s",
    ),
    "auth": ("reads",),
    "http": ("keep_alive_s", "cors_origins", "allowed_hosts", "trusted_proxies", "strict_fields"),
    "tracing": ("sample_ratio",),
}
COUNTS: Mapping[str, tuple[str, ...]] = {
    "verifiers": ("count", "autoscaling"),
    "ingress": ("count", "autoscaling"),
}


def reloadable_of(config: Config) -> dict[str, dict[str, Any]]:
    data = dumped(config)
    return {section: {name: data[section][name] for name in names} for section, names in RELOADABLE.items()}


def rest_of(config: Config) -> dict[str, Any]:
    """All settings that are neither reloadable nor counts, as JSON; a change of one restarts every replica."""
    data = dumped(config)
    for parts in (RELOADABLE, COUNTS):
        for section, names in parts.items():
            data[section] = {name: value for name, value in data[section].items() if name not in names}
    return data


def with_reloadable(config: Config, reloadable: ReloadableFields) -> Config:
    """Return the configuration with other reloadable settings; those that are not named stay.

    Raises:
        ConfigError: a setting that is not reloadable is named, or the result is not valid.
    """
    data = dumped(config)
    for section, values in _sections(reloadable):
        for name, value in values.items():
            if name in data[section] and name not in RELOADABLE[section]:
                needed = (
                    f"only reloadable settings ({', '.join(RELOADABLE[section])}); others are application arguments"
                )
                raise ConfigError(f"user_config.{section}", needed, name)
            data[section][name] = value
    return build_config(data, "user_config")


def _sections(reloadable: object) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(reloadable, Mapping):
        raise ConfigError("user_config", "a mapping of sections", reloadable)
    for section, values in reloadable.items():
        if section not in RELOADABLE:
            raise ConfigError("user_config", f"sections with reloadable settings ({', '.join(RELOADABLE)})", section)
        if not isinstance(values, Mapping):
            raise ConfigError(f"user_config.{section}", "a mapping of settings", values)
    return list(reloadable.items())

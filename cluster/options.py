"""Options common to several commands. Their imports happen when they are read."""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.contracts.errors import ParameterError

if TYPE_CHECKING:
    from outrider.config.schema import Config


_PRECEDENCE = """\
The file comes first, then variables such as OUTRIDER__VERIFIERS__THREADS=2, then
arguments in their order. Values are YAML; `outrider config show` prints the result."""


def add_config_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("configuration", _PRECEDENCE)
    group.add_argument(
        "--config",
        metavar="FILE",
        default=os.environ.get("OUTRIDER_CONFIG"),
        help="YAML file (default: $OUTRIDER_CONFIG, else the built-in configuration)",
    )
    group.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one field, such as verifiers.threads=2; may be repeated",
    )


def read_config(arguments: argparse.Namespace, *, checks: bool = True) -> "Config":
    """Load the configuration that the options name. Nothing else reads settings from the environment.

    Unless it ``checks``, what lacks its other half is read all the same, as by an earlier release.
    """
    from outrider.config.assigning import (
        Assignment,
        assign,
        assignment_of,
        from_environment,
        refuse_contradictions,
    )
    from outrider.config.reading import load_config

    given = [assignment_of(each) if isinstance(each, str) else Assignment(*each) for each in arguments.assignments]
    refuse_contradictions(given)
    found = assign(load_config(arguments.config), [*from_environment(os.environ), *given])
    return found.check_together() if checks else found


def checked_config(arguments: argparse.Namespace) -> "Config":
    """Load the configuration that the options name, and check the files that it names in turn."""
    config = read_config(arguments)
    check_files(config)
    return config


def check_files(config: "Config") -> None:
    """Read the files that a configuration names: a mistake in one is found before anything starts."""
    from outrider.costs.profiles import read_profile
    from outrider.tenants.devices import decode_devices, read_devices_file
    from outrider.tenants.keys import check_against, read_keys

    for path in config.scheduling.cost_profiles:
        read_profile(path)
    if config.auth.keys_file is not None and _is_here(config.auth.keys_file):
        keys = read_keys(config.auth.keys_file)
        classes, groups = [slo.name for slo in config.slo.classes], [group.name for group in config.drafters]
        check_against(keys, classes, groups, config.auth.keys_file)
    if (devices := config.gateway.devices_file) is not None and _is_here(devices):
        decode_devices(read_devices_file(devices), devices)


def _is_here(path: str) -> bool:
    """Whether a file is not on another machine alone; one that cannot be looked up is read, which says why."""
    try:
        return Path(path).exists()
    except OSError:
        return True


def add_url_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the service (default: %(default)s)")


def add_key_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--api-key``; ``key_headers`` makes request headers of it."""
    parser.add_argument(
        "--api-key", metavar="KEY", default=own_api_key(), help="of the service (default: $OUTRIDER_API_KEY)"
    )


def own_api_key() -> str | None:
    return os.environ.get("OUTRIDER_API_KEY") or None


def key_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def check_plots(folder: Path | None) -> None:
    """Fail at once, not after minutes, if plots lack their package."""
    if folder is not None and find_spec("matplotlib") is None:
        raise ParameterError("--plots", "matplotlib (pip install '.[bench]' in a checkout)", "no such package")

"""Start a cluster on this machine and serve the API until Ctrl-C."""

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cluster.options import add_config_options, check_files, read_config
from cluster.setting_flags import add_holding_flags, add_http_flags, add_model_flags, with_model
from cluster.unknown_flags import refuse_unknown

if TYPE_CHECKING:
    from outrider.config.schema import Config


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.allow_abbrev = False  # a key is to be found among the arguments by its flag
    add_model_flags(parser)
    add_http_flags(parser)
    add_config_options(parser)
    add_holding_flags(parser)
    known = [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001 (argparse lists none)
    parser.set_defaults(refuse_unknown=partial(refuse_unknown, known=known))


def run(arguments: argparse.Namespace) -> None:
    from cluster.api_key import asking_for, take_key

    config = served_config(arguments)
    key = take_key(arguments.api_key, config)
    check_files(config)
    from cluster.local import serve_locally

    with asking_for(key, config) as asked:
        serve_locally(asked)


def served_config(arguments: argparse.Namespace) -> "Config":
    """Read the configuration; the embedded drafter, unless it was asked for, is left out for other models.

    Raises:
        ConfigError: as ``read_config``; or ``--drafter`` does not say which of several groups it is of.
    """
    from outrider.config.schema import Config
    from outrider.contracts.errors import ConfigError
    from outrider.models.folders import is_embedded_target

    arguments.assignments = with_model(arguments.model, arguments.assignments)
    config = read_config(arguments)
    if len(config.drafters) > 1 and any(each[0] == "--drafter" for each in arguments.assignments):
        needed = "one drafter group; set the model of one of several by its place, as in --set drafters.1.model=PATH"
        raise ConfigError("--drafter", needed, [group.name for group in config.drafters])
    has_own = arguments.model is None or is_embedded_target(config.model.target)
    return config if has_own or config.drafters != Config().drafters else replace(config, drafters=())

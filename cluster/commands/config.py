"""Show or check the configuration."""

import argparse

from cluster.options import add_config_options, checked_config, read_config


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to do with which configuration."""
    parser.description = __doc__
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print every field as it will be used, as YAML")
    check = actions.add_parser("check", help="report everything that is wrong with the configuration")
    for action, act in ((show, _show), (check, _check)):
        add_config_options(action)
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> None:
    """Show or check."""
    arguments.act(arguments)


def _show(arguments: argparse.Namespace) -> None:
    from outrider.config.reading import to_yaml

    print(to_yaml(read_config(arguments)), end="")


def _check(arguments: argparse.Namespace) -> None:
    checked_config(arguments)
    print(f"{arguments.config or 'the built-in configuration'}: ok")

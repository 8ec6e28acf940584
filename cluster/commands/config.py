"""Show or check the configuration."""

import argparse
import sys

from cluster.options import add_config_options, checked_config, read_config


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print every field as it will be used, as YAML")
    check = actions.add_parser("check", help="report everything that is wrong with the configuration")
    for action, act in ((show, _show), (check, _check)):
        add_config_options(action)
        action.set_defaults(act=act)
    check.add_argument(
        "--serve", metavar="FILE", help="a file for Serve or KubeRay instead, with its user_config; -: standard input"
    )


def run(arguments: argparse.Namespace) -> None:
    arguments.act(arguments)


def _show(arguments: argparse.Namespace) -> None:
    from outrider.config.reading import to_yaml

    print(to_yaml(read_config(arguments)), end="")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.serve is not None:
        _check_served(arguments.serve)
        return
    checked_config(arguments)
    print(f"{arguments.config or 'the built-in configuration'}: ok")


def _check_served(file: str) -> None:
    from outrider.documents.text_file import read_text
    from serve_app.serve_file import configs_in

    text = sys.stdin.read() if file == "-" else read_text(file, "--serve", "YAML")
    for name in configs_in(text, file):
        print(f"{file}: application {name}: ok")

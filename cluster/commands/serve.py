"""Start a cluster on this machine and serve the API until Ctrl-C."""

import argparse

from cluster.options import add_config_options, checked_config


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add_config_options(parser)


def run(arguments: argparse.Namespace) -> None:
    config = checked_config(arguments)
    from cluster.local import serve_locally

    serve_locally(config)

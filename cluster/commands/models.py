"""Manage the embedded models."""

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to do."""
    parser.description = __doc__
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("fetch", help="fetch and convert the embedded target, if it is not there yet")


def run(arguments: argparse.Namespace) -> None:
    """Fetch, the one action there is."""
    del arguments
    from outrider.models.embedded import ensure_embedded_target

    print(ensure_embedded_target(progress=True))

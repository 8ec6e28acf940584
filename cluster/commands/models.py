"""Manage the embedded models."""

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to do."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("fetch", help="fetch and convert the embedded target, if it is not there yet")


def run(_: argparse.Namespace) -> None:
    """Fetch, the one action there is."""
    from outrider.models.embedded import ensure_embedded_target

    print(ensure_embedded_target(progress=True))

"""Manage models: fetch the embedded target, or verify that model files are unchanged."""

import argparse
import sys


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    actions.add_parser("fetch", help="fetch and convert the embedded target, if it is not there yet or is damaged")
    check = actions.add_parser(
        "check", help="compare a model's files with the SHA-256 recorded by its manifest.json or SHA256SUMS"
    )
    check.add_argument("models", nargs="*", default=["embedded"], metavar="MODEL", help="folder or name (embedded)")


def run(arguments: argparse.Namespace) -> None:
    if arguments.action == "fetch":
        from outrider.models.embedded import fetch_embedded_target

        print(fetch_embedded_target(lambda line: print(line, file=sys.stderr)))
        return
    from outrider.contracts.errors import ModelUnavailableError
    from outrider.models.folders import resolve_folder
    from outrider.models.weight_hashes import SUMS, check_hashes

    for model in arguments.models:
        folder = resolve_folder(model)
        count = check_hashes(folder)
        if not count:
            raise ModelUnavailableError(
                f"needs {SUMS} in {folder}, found none; if the files are sound, run `sha256sum * > {SUMS}` there"
            )
        print(f"{folder}: {count} files, each as recorded")

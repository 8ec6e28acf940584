"""Put the service on a running Ray cluster, update it, or remove it."""

import argparse

from cluster.options import add_config_options, checked_config, read_config


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("--address", required=True, help="of the cluster: auto, host:6379 or ray://host:10001")
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--remove", action="store_true", help="remove the service")
    acts.add_argument(
        "--restart", action="store_true", help="restart every replica, for example after model files changed"
    )
    add_config_options(parser)


def run(arguments: argparse.Namespace) -> None:
    config = read_config(arguments, checks=False) if arguments.remove else checked_config(arguments)
    from cluster.remote import deploy, remove

    def show(line: str) -> None:
        print(line, flush=True)

    if arguments.remove:
        remove(config, arguments.address, show)
    else:
        deploy(config.check_together(is_served=True), arguments.address, show, restart=arguments.restart)

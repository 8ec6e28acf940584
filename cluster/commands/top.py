"""Poll a service and show its state, until Ctrl-C."""

import argparse
import time
from dataclasses import dataclass

import httpx
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.options import add_key_option, add_url_option, key_headers
from cluster.service_status import ServiceStatus, StatusError, parse_status
from cluster.top_view import view
from outrider.contracts.errors import ParameterError

_DEADLINE_S = 5.0
_LONGEST_INTERVAL_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Poll:
    """A status, and when it arrived (monotonic clock)."""

    status: ServiceStatus
    at_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add_url_option(parser)
    add_key_option(parser)
    add = parser.add_argument
    add("--interval-s", type=float, default=1.0, help="seconds between two polls (default: %(default)s)")
    add("--once", action="store_true", help="print one picture, of two polls")


def run(arguments: argparse.Namespace) -> None:
    interval_s, url = arguments.interval_s, arguments.url.rstrip("/")
    if not 0 < interval_s <= _LONGEST_INTERVAL_S:
        raise ParameterError("--interval-s", f"a number in (0, {_LONGEST_INTERVAL_S:g}]", interval_s)
    console = Console()
    with httpx.Client(timeout=_DEADLINE_S, headers=key_headers(arguments.api_key)) as client:
        if arguments.once:
            before = poll(client, url)
            time.sleep(interval_s)
            console.print(_picture(before, poll(client, url), url))
        else:
            _watch(client, url, interval_s, console)


def poll(client: httpx.Client, url: str) -> Poll:
    """Poll once; raises ``StatusError`` if there is no answer, or not a status."""
    try:
        answer = client.get(f"{url}/status")
    except httpx.HTTPError as error:
        raise StatusError(f"needs an Outrider service at {url}, found: {error or type(error).__name__}") from error
    if not answer.is_success:
        raise StatusError(f"needs an Outrider service at {url}, found: HTTP status {answer.status_code}")
    return Poll(parse_status(answer.content), time.monotonic())


def _watch(client: httpx.Client, url: str, interval_s: float, console: Console) -> None:
    before: Poll | None = None
    picture: RenderableType = Text(f"Asking {url}")
    with Live(picture, console=console, auto_refresh=False) as live:
        while True:
            try:
                now = poll(client, url)
            except StatusError as error:
                live.update(Group(Text(f"{error}; trying again", "red"), picture), refresh=True)
            else:
                picture = _picture(before or now, now, url)
                live.update(picture, refresh=True)
                before = now
            time.sleep(interval_s)


def _picture(before: Poll, now: Poll, url: str) -> RenderableType:
    return view(before.status, now.status, now.at_s - before.at_s, url)

"""Whether this container works, as its exit status: Serve's HTTP answers here, or at least Ray's agent of this node."""

import sys
from http import HTTPStatus
from urllib.request import urlopen

PROBES = ("http://127.0.0.1:8000/-/healthz", "http://127.0.0.1:8000/health", "http://127.0.0.1:52365/api/healthz")


def healthy(url: str) -> bool:
    """Whether it answers with 200."""
    try:
        with urlopen(url, timeout=3) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not any(map(healthy, PROBES)))

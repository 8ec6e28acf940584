"""Drain a spot machine's Ray node when its cloud announces that it takes the machine back.

    python -m cluster.spot_drain aws   (or gcp)

Runs beside ``ray start`` on spot machines. Amazon gives two minutes' notice, Google half a minute: less than a long
response takes, so responses continue at other verifiers, from the tokens they have (docs/design/0005).
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

AWS = "http://169.254.169.254"
GCP = "http://metadata.google.internal"
_NOTICE_S = {"aws": 120, "gcp": 30}
_MARGIN_S = 10  # so that Ray is done before the machine is gone
_POLL_S = 2.0
_ANSWER_DEADLINE_S = 5.0
_COMMAND_DEADLINE_S = 30.0  # for Ray's command; ``ray.init`` has no deadline of its own
_DIRECT = build_opener(ProxyHandler({}))  # never through http_proxy, which would see the machine's metadata token
_NODE_ID = 'import ray; ray.init("auto", log_to_driver=False); print(ray.get_runtime_context().get_node_id())'


def taken_back_by_aws(address: str = AWS) -> bool:
    """Whether an interruption is announced."""
    life = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _read(Request(f"{address}/latest/api/token", headers=life, method="PUT"))
    headers = {"X-aws-ec2-metadata-token": token}
    try:
        _read(Request(f"{address}/latest/meta-data/spot/instance-action", headers=headers))
    except HTTPError as error:
        if error.code == 404:
            return False
        raise
    return True


def taken_back_by_gcp(address: str = GCP) -> bool:
    headers = {"Metadata-Flavor": "Google"}
    return _read(Request(f"{address}/computeMetadata/v1/instance/preempted", headers=headers)).strip() == "TRUE"


CLOUDS: dict[str, Callable[[], bool]] = {"aws": taken_back_by_aws, "gcp": taken_back_by_gcp}


def drain_command(node_id: str, cloud: str, left_s: int) -> list[str]:
    return [
        str(Path(sys.executable).with_name("ray")),
        "drain-node",
        *("--address", "auto", "--node-id", node_id),
        *("--reason", "DRAIN_NODE_REASON_PREEMPTION"),
        *("--reason-message", f"{cloud} takes this spot machine back"),
        *("--deadline-remaining-seconds", str(left_s)),
    ]


def await_notice(taken_back: Callable[[], bool], wait: Callable[[float], None]) -> None:
    """Poll until there is a notice; retry while the metadata service fails."""
    while True:
        try:
            if taken_back():
                return
        except OSError as error:
            print(f"asking again: {error}", flush=True)
        wait(_POLL_S)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cloud", choices=sorted(CLOUDS))
    cloud = parser.parse_args(arguments).cloud
    await_notice(CLOUDS[cloud], time.sleep)
    if not drain(cloud, _output_of, time.monotonic, time.sleep):
        sys.exit("the node could not be drained in time")


def drain(
    cloud: str, output_of: Callable[[list[str], float], str], now_s: Callable[[], float], wait: Callable[[float], None]
) -> bool:
    """Tell Ray to drain this node, on ``cloud``'s notice of just now; return whether it accepted in time.

    ``output_of`` returns what a command prints within so many seconds, or raises ``OSError`` or ``SubprocessError``.
    """
    ends_at_s = now_s() + _NOTICE_S[cloud] - _MARGIN_S
    while (left_s := ends_at_s - now_s()) >= 1:
        try:
            node_id = output_of([sys.executable, "-c", _NODE_ID], min(left_s, _COMMAND_DEADLINE_S)).strip()
            left_s = max(ends_at_s - now_s(), 1)
            output_of(drain_command(node_id, cloud, int(left_s)), min(left_s, _COMMAND_DEADLINE_S))
        except (OSError, subprocess.SubprocessError) as error:
            print(f"draining again: {error}", flush=True)
            wait(_POLL_S)
        else:
            return True
    return False


def _output_of(command: list[str], deadline_s: float) -> str:
    return subprocess.run(command, check=True, timeout=deadline_s, stdout=subprocess.PIPE, text=True).stdout


def _read(request: Request) -> str:
    with _DIRECT.open(request, timeout=_ANSWER_DEADLINE_S) as answer:  # the addresses are ours
        return str(answer.read().decode())


if __name__ == "__main__":
    main()

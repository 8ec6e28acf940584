"""Leave a rented machine in good order: when its cloud says that it takes it back, have Ray drain the node.

    python -m cluster.spot_drain aws   (or gcp)

Runs beside ``ray start`` on spot machines. Amazon says so two minutes before, Google half a minute: less than a long
response takes, so responses go on at other verifiers, from the tokens they have (docs/design/0005).
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

AWS = "http://169.254.169.254"
GCP = "http://metadata.google.internal"
_NOTICE_S = {"aws": 120, "gcp": 30}
_MARGIN_S = 10  # so that Ray is done before the machine is gone
_POLL_S = 2.0
_ANSWER_DEADLINE_S = 5.0


def taken_back_by_aws(address: str = AWS) -> bool:
    """Whether an interruption is announced.

    Raises:
        OSError: the machine's metadata cannot be had.
    """
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
    """Whether the machine is preempted.

    Raises:
        OSError: the machine's metadata cannot be had.
    """
    headers = {"Metadata-Flavor": "Google"}
    return _read(Request(f"{address}/computeMetadata/v1/instance/preempted", headers=headers)).strip() == "TRUE"


CLOUDS: dict[str, Callable[[], bool]] = {"aws": taken_back_by_aws, "gcp": taken_back_by_gcp}


def drain_command(node_id: str, cloud: str) -> list[str]:
    """Ray's own, for this node.

    Args:
        node_id: Ray's, in hexadecimal.
        cloud: which notice was given.
    """
    return [
        str(Path(sys.executable).with_name("ray")),
        "drain-node",
        *("--address", "auto", "--node-id", node_id),
        *("--reason", "DRAIN_NODE_REASON_PREEMPTION"),
        *("--reason-message", f"{cloud} takes this spot machine back"),
        *("--deadline-remaining-seconds", str(_NOTICE_S[cloud] - _MARGIN_S)),
    ]


def await_notice(taken_back: Callable[[], bool], wait: Callable[[float], None]) -> None:
    """Ask until there is one; metadata that cannot be had for a moment is asked for again."""
    while True:
        try:
            if taken_back():
                return
        except OSError as error:
            print(f"asking again: {error}", flush=True)
        wait(_POLL_S)


def main(arguments: Sequence[str] | None = None) -> None:
    """Wait, then drain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cloud", choices=sorted(CLOUDS))
    cloud = parser.parse_args(arguments).cloud
    await_notice(CLOUDS[cloud], time.sleep)
    subprocess.run(drain_command(_node_id(), cloud), check=True, timeout=60)


def _node_id() -> str:
    import ray  # noqa: PLC0415  # seconds and memory that only a machine that leaves has to spend

    ray.init(address="auto", log_to_driver=False)
    try:
        return str(ray.get_runtime_context().get_node_id())
    finally:
        ray.shutdown()


def _read(request: Request) -> str:
    with urlopen(request, timeout=_ANSWER_DEADLINE_S) as answer:  # the addresses are ours
        return str(answer.read().decode())


if __name__ == "__main__":
    main()

"""Where a replica listens for calls of other replicas: where its node does."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest
from ray.serve._private import replica

from actors.ray_internals import serve


@pytest.mark.parametrize(("node", "loopback"), [("127.0.0.1", True), ("10.0.0.7", False)])
def test_it_listens_on_loopback_where_its_node_does(node: str, loopback: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "get_node_ip_address", lambda: node)
    monkeypatch.setattr(replica, "add_port_to_grpc_server", vars(replica)["add_port_to_grpc_server"])
    serve.listen_where_the_node_does()
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = vars(replica)["add_port_to_grpc_server"](server, "[::]:0")
        server.start()
        lines = [line.split() for line in Path("/proc/net/tcp6").read_text(encoding="ascii").splitlines()[1:]]
        lines += [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        found = {fields[1] for fields in lines if fields[1].endswith(f":{port:04X}") and fields[3] == "0A"}
        server.stop(None).wait()
    (address,) = found
    assert address.partition(":")[0].endswith("0100007F") == loopback  # an IPv4 address, or the same mapped into IPv6

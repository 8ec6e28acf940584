"""Certificates and a drafter's file, made once."""

import pytest

from edge.gateway_access import GatewayAccess
from outrider.engines.onnx.export import export_drafter
from tests.unit.edge.certificates import Authority, Identity
from tests.unit.edge.gateway import HOST, Gateway
from tests.unit.engines.conftest import loaded, tiny_llama


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def server(authority: Authority) -> Identity:
    return authority.issue("gateway")


@pytest.fixture(scope="session")
def drafter_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of the tiny model, in float32: it drafts what the model says."""
    file = tmp_path_factory.mktemp("drafter") / "drafter.onnx"
    export_drafter(loaded(tiny_llama()), file, quantise=False)
    return file.read_bytes()


@pytest.fixture
def gateway(drafter_file: bytes) -> Gateway:
    return Gateway(drafter_file)


def access_to(address: str | Gateway, authority: Authority) -> GatewayAccess:
    return GatewayAccess(address if isinstance(address, str) else f"{HOST}:{address.port}", authority.file)

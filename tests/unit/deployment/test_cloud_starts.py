"""``ray up`` of Amazon's file as far as a machine that runs: Ray's own launcher, against moto's EC2 and IAM."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.providers import _get_node_provider
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.unit.deployment.manifests import ROOT

REGION = "us-west-2"
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def _tags(kind: str, *, head: bool) -> dict[str, str]:
    return {
        "ray-cluster-name": "outrider",
        "ray-launch-config": "any",
        "ray-node-name": kind,
        "ray-node-status": "uninitialized",
        "ray-node-type": "head" if head else "worker",
        "ray-user-node-type": kind,
    }


def started(image: str) -> dict[str, Any]:
    """The file with an image that there is, bootstrapped by Ray, with one machine of each type."""
    text = (ROOT / "cluster" / "aws.yaml").read_text(encoding="utf-8")
    for number in (0, 1):
        text = text.replace(f"ami-0123456789abcdef{number}", image)
    prepared = prepare_config(yaml.safe_load(text))
    validate_config(prepared)
    aws: Any = importlib.import_module("ray.autoscaler._private.aws.config")
    config: dict[str, Any] = aws.bootstrap_aws(prepared)
    provider: Any = _get_node_provider(config["provider"], config["cluster_name"])
    for kind, found in config["available_node_types"].items():
        provider.create_node(found["node_config"], _tags(kind, head=kind == config["head_node_type"]), 1)
    return config


@pytest.mark.long  # Ray waits a quarter of a minute for a role
def test_amazon_starts_every_machine_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if importlib.util.find_spec("moto") is None:
        pytest.skip("needs moto and boto3 (of the extra dev), found none")
    moto: Any = importlib.import_module("moto")
    boto3: Any = importlib.import_module("boto3")
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps the key of its machines there
    with moto.mock_aws():
        ec2 = boto3.client("ec2", region_name=REGION)
        started(ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"])
        machines = [one for found in ec2.describe_instances()["Reservations"] for one in found["Instances"]]
        groups = {group["GroupName"]: group for group in ec2.describe_security_groups()["SecurityGroups"]}
    assert sorted((one["InstanceType"], one.get("InstanceLifecycle", "on demand")) for one in machines) == [
        ("g6e.2xlarge", "on demand"),
        ("g6e.2xlarge", "spot"),
        ("m6i.xlarge", "on demand"),
    ]
    assert {group["GroupName"] for one in machines for group in one["SecurityGroups"]} == {"outrider"}
    rules = groups["outrider"]["IpPermissions"]
    assert {rule.get("FromPort") for rule in rules if rule["IpRanges"]} == {22, 51820}, (
        "no port of Ray's, nor the API's"
    )
    assert len(list((tmp_path / ".ssh").iterdir())) == 1

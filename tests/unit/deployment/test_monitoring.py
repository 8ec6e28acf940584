"""``kubectl apply -k k8s/monitoring``: what it sends is what Kubernetes, Prometheus's operator and Grafana take."""

import copy
import json
from collections import Counter
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from lab.dashboards.drawn import BOARDS
from tests.unit.deployment.manifests import ROOT, kustomized
from tests.unit.deployment.test_kubernetes import KUBERNETES

FIELDS = yaml.safe_load((ROOT / "tests/unit/deployment/monitoring_fields.yaml").read_text(encoding="utf-8"))
MOST_BYTES = 2**20  # of a ConfigMap's data, which Kubernetes refuses beyond
MOST_APPLIED_BYTES = 2**18  # of an object as ``kubectl apply`` notes it in an annotation


def accepted(document: dict[str, Any]) -> None:
    if document["kind"] == "ConfigMap":
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    else:
        jsonschema.Draft202012Validator(FIELDS[document["kind"]]).validate(document)


@pytest.fixture(scope="module")
def documents() -> tuple[Any, ...]:
    return kustomized("monitoring")


def of_kind(documents: tuple[Any, ...], kind: str) -> list[Any]:
    return [document for document in documents if document["kind"] == kind]


def test_everything_is_accepted(documents: tuple[Any, ...]) -> None:
    kinds = Counter(document["kind"] for document in documents)
    assert kinds == {"ConfigMap": len(BOARDS), "PodMonitor": 2, "PrometheusRule": 1}
    for document in documents:
        accepted(document)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "ports"), "metrics"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "interval"), "5 s"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "relabelings", 0, "source_labels"), ["a"]),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "severity"), "page"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "alert"), "that records too"),
        ("ConfigMap", ("datas",), {}),
    ],
)
def test_a_field_that_is_not_known_is_found(
    documents: tuple[Any, ...], kind: str, path: tuple[Any, ...], value: object
) -> None:
    document = copy.deepcopy(of_kind(documents, kind)[0])
    *way, last = path
    place = document
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        accepted(document)


def test_dashboards_fit_and_grafanas_sidecar_finds_them(documents: tuple[Any, ...]) -> None:
    found = set()
    for each in of_kind(documents, "ConfigMap"):
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1", "kube-prometheus-stack's sidecar selects by it"
        ((name, text),) = each["data"].items()
        assert len(text.encode()) < MOST_BYTES
        assert len(json.dumps(each).encode()) < MOST_APPLIED_BYTES
        found.add((name, json.loads(text)["uid"]))
    assert found == {(f"{board.name}.json", f"outrider-{board.name}") for board in BOARDS}
    assert len(json.dumps(of_kind(documents, "PrometheusRule")).encode()) < MOST_APPLIED_BYTES


def test_prometheus_selects_monitors_and_rules_by_one_label_and_no_namespace_is_fixed(
    documents: tuple[Any, ...],
) -> None:
    for each in documents:
        assert "namespace" not in each["metadata"], "they go where the cluster is: kubectl apply -n"
        if each["kind"] != "ConfigMap":
            assert each["metadata"]["labels"] == {"release": "prometheus"}

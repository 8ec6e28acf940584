"""What an operator is given: a folder that Prometheus, Grafana and Kubernetes take as it is."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from cluster.cli import main
from cluster.local import announce_metrics
from cluster.monitoring.files import FOLDER, MonitoringTargets, packaged, write
from cluster.monitoring.running import grafana_command, grafana_settings, prometheus_over
from cluster.private_ray import private_folder
from outrider.contracts.errors import ParameterError
from tests.unit.cluster.monitoring.promtool import promtool
from tests.unit.deployment.manifests import OVERLAYS, built

ROOT = Path(__file__).parents[4]


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def test_the_command_writes_everything_and_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "some" / "folder"
    places = [
        "--discovery",
        "/d/found.json",
        "--prometheus",
        "http://metrics:9091",
        "--cluster",
        "edge",
        "--model",
        "m",
        "--runbook",
        "https://r",
    ]
    assert main(["dashboards", "--out", str(out), *places]) == 0
    said = [Path(line).relative_to(out) for line in capsys.readouterr().out.splitlines()]
    assert said == list(packaged())
    assert {path.suffix for path in said} == {".json", ".yaml"}
    (scraping,) = documents(out / "prometheus.yaml")[0]["scrape_configs"]
    assert scraping["file_sd_configs"][0]["files"] == ["/d/found.json"]
    assert scraping["relabel_configs"] == [{"target_label": "ray_io_cluster", "replacement": "edge"}]
    groups = documents(out / "rules.yaml")[0]["groups"]
    told = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert told
    assert all(url.startswith("https://r#outrider") for url in told)
    recorded = [rule for group in groups for rule in group["rules"]]
    assert {rule["labels"]["model_name"] for rule in recorded if "record" in rule and "labels" in rule} == {"m"}
    (source,) = documents(out / "grafana/provisioning/datasources/outrider.yaml")[0]["datasources"]
    assert source["url"] == "http://metrics:9091"
    (provider,) = documents(out / "grafana/provisioning/dashboards/outrider.yaml")[0]["providers"]
    boards = Path(provider["options"]["path"])
    assert boards == out / "dashboards"
    assert {json.loads(file.read_text("utf-8"))["uid"] for file in boards.iterdir()} == {
        f"outrider-{name}" for name in ("overview", "speculation", "link", "verifier", "fleet")
    }
    promtool("check", "config", "prometheus.yaml", folder=out)


def test_prometheus_started_here_finds_the_service_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with TemporaryDirectory(dir="/tmp") as temporary:  # a short path
        monkeypatch.setenv("RAY_TMPDIR", temporary)
        assert main(["dashboards", "--start", "--out", str(tmp_path)]) != 0, "there is no Prometheus"
        (scraping,) = documents(tmp_path / "prometheus.yaml")[0]["scrape_configs"]
        file = announce_metrics("http://127.0.0.1:1234/metrics", private_folder())
    assert scraping["file_sd_configs"][0]["files"] == [str(file)]


def test_kubernetes_is_given_the_same_and_finds_its_files() -> None:
    (rule,) = documents(FOLDER / "kubernetes/prometheusrule.yaml")
    assert rule["spec"] == documents(FOLDER / "rules.yaml")[0]
    (kustomization,) = documents(FOLDER / "kustomization.yaml")
    named = [*kustomization["resources"]]
    for generated in kustomization["configMapGenerator"]:
        named += generated["files"]
    assert all((FOLDER / name).exists() for name in named)
    assert {name for name in named if "dashboards" in name} == {
        str(path) for path in packaged() if path.suffix == ".json"
    }
    assert (ROOT / "k8s" / "monitoring").resolve() == FOLDER.resolve()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pod_monitors_select_pods_and_ports_that_there_are(overlay: str) -> None:
    ports = [group.ports for group in built(overlay).groups.values()]
    monitors = documents(FOLDER / "kubernetes/podmonitors.yaml")
    assert {each["spec"]["selector"]["matchLabels"]["ray.io/node-type"] for each in monitors} == {"head", "worker"}
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert all(endpoint["port"] in names for names in ports)
        assert endpoint["relabelings"][0]["targetLabel"] == "ray_io_cluster"


def test_a_service_on_this_machine_says_where_its_exporter_is_as_ray_does(tmp_path: Path) -> None:
    file = announce_metrics("http://127.0.0.1:1234/metrics", tmp_path)
    assert file.name == Path(MonitoringTargets().discovery).name
    assert json.loads(file.read_text("utf-8")) == [{"labels": {"job": "ray"}, "targets": ["127.0.0.1:1234"]}]
    announce_metrics("http://127.0.0.1:99/metrics", tmp_path)
    assert json.loads(file.read_text("utf-8"))[0]["targets"] == ["127.0.0.1:99"], "the newest counts"
    assert list(tmp_path.iterdir()) == [file]


def test_without_prometheus_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path, MonitoringTargets())
    with (
        pytest.raises(ParameterError, match="Debian's package"),
        prometheus_over(tmp_path, MonitoringTargets().prometheus_url),
    ):
        pass


@pytest.mark.parametrize(("program", "arguments"), [("grafana-server", []), ("grafana", ["server"])])
def test_grafana_is_started_where_there_is_one(
    program: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert grafana_command() is None
    file = tmp_path / program
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    found = grafana_command()
    assert found is not None
    assert found[: 1 + len(arguments)] == [str(file), *arguments]
    settings = grafana_settings(tmp_path)
    assert settings["GF_PATHS_PROVISIONING"] == str(tmp_path / "grafana" / "provisioning")
    assert settings["GF_SERVER_HTTP_ADDR"] == "127.0.0.1", "it asks nobody who they are"

"""Rented machines and devices: Ray accepts the files, what is claimed is offered, and a notice is heard."""

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import drain_node, start

from cluster.capacity_check import misfit, place, service_claims
from cluster.monitoring.files import MonitoringTargets
from cluster.spot_drain import CLOUDS, await_notice, drain, drain_command, taken_back_by_aws, taken_back_by_gcp
from outrider import __version__
from outrider.config.reading import load_config
from outrider.tenants.keys import read_keys
from tests.unit.deployment.manifests import ROOT

CLUSTER = ROOT / "cluster"
UNIT = CLUSTER / "outrider-jetson.service"


@pytest.fixture(params=["aws", "gcp"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prepared(name: str) -> dict[str, Any]:
    found: dict[str, Any] = prepare_config(yaml.safe_load((CLUSTER / f"{name}.yaml").read_text(encoding="utf-8")))
    validate_config(found)
    return found


def test_ray_accepts_the_file(name: str) -> None:
    assert prepared(name)["provider"]["type"] == name


def test_no_command_is_rays_own(name: str) -> None:
    """Ray adds the cloud's SDK for the system's Python, where a file has no commands for the head."""
    written = yaml.safe_load((CLUSTER / f"{name}.yaml").read_text(encoding="utf-8"))
    merged = prepared(name)
    assert merged["head_setup_commands"] == written["setup_commands"] + written["head_setup_commands"]
    assert merged["worker_setup_commands"] == written["setup_commands"]
    assert merged["initialization_commands"] == []
    for role in ("head", "worker"):
        assert merged[f"{role}_start_ray_commands"] == written[f"{role}_start_ray_commands"]
    (sdk,) = [one for one in written["head_setup_commands"] if "pip install" in one]
    assert sdk.endswith(f" -r locked.txt -r locked-{name}.txt")
    assert f"'.[{name}]'" in (CLUSTER / f"{name}.yaml").read_text(encoding="utf-8")


def test_the_page_prepares_what_every_machine_is_to_get(tmp_path: Path) -> None:
    """Its commands, run in a home of their own, but the first, which installs what is installed here."""
    if not (ROOT / ".venv" / "bin" / "pip").exists():
        pytest.skip("needs `make install`, found no .venv")
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8").partition("step by step\n")[2]
    prepare, use = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)[:2]
    assert prepare.startswith("make install\n")
    steps = prepare.removeprefix("make install\n").replace("pip wheel", "pip wheel --no-build-isolation -q")
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", steps],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / ".outrider"
    made = {path.name for path in folder.iterdir()}
    assert made == {
        f"outrider-{__version__}-py3-none-any.whl",
        *["requirements", "config.yaml", "env", "token", "keys.yaml"],
    }
    assert re.fullmatch(r"\S{16,}\s*", (folder / "token").read_text(encoding="utf-8"))
    assert (folder / "token").stat().st_mode & 0o077 == 0
    (tenant,) = read_keys(str(folder / "keys.yaml")).tenants
    assert tenant.name == "me"
    for name in ("aws", "gcp"):
        text = (CLUSTER / f"{name}.yaml").read_text(encoding="utf-8")
        for line in (folder / "env").read_text(encoding="utf-8").splitlines():
            assert f" {line}\n" in text, "as the file's head says"
    assert {"up", "exec", "attach", "down"} == set(re.findall(r"bin/ray (\w+) cluster/aws.yaml", use))


def test_the_head_scrapes_what_ray_announces(name: str) -> None:
    commands = prepared(name)["head_start_ray_commands"]
    (written,) = [one for one in commands if "outrider dashboards" in one]
    (started,) = [one for one in commands if "prometheus --config.file" in one]
    folder = written.rpartition("--out ~/")[2]
    assert f"--config.file=$HOME/{folder}/prometheus.yaml " in started
    assert "--web.listen-address=127.0.0.1:" in started, "from the head alone"
    assert Path(MonitoringTargets().discovery).parent == Path("/tmp/ray"), "where Ray's dashboard writes it"  # noqa: S108


def test_a_field_that_ray_does_not_know_is_found() -> None:
    broken = prepared("aws") | {"max_wokers": 3}
    with pytest.raises(Exception, match="max_wokers"):
        validate_config(broken)


def test_machines_have_room_for_what_is_deployed(name: str) -> None:
    """Devices join from outside; the service works without them."""
    types = prepared(name)["available_node_types"]
    nodes = [kind["resources"] for kind in types.values() for _ in range(kind.get("min_workers", 0))]
    config = load_config(CLUSTER / "cloud-config.yaml")
    assert len(nodes) == config.verifiers.count
    assert misfit(service_claims(config), [types["head"]["resources"], *nodes]) is None, "outrider deploy asks that"
    assert place(service_claims(config), [types["head"]["resources"], *nodes]) == ()
    assert place(service_claims(config), [types["head"]["resources"]]), "verifiers stay off the head"
    assert [group.trust for group in config.drafters] == ["untrusted"]


def test_one_machine_is_not_on_spot_and_others_are(name: str) -> None:
    types = prepared(name)["available_node_types"]
    on_spot = {kind for kind in types if re.search(r"spot|'preemptible': True", str(types[kind]["node_config"]))}
    assert on_spot == {"verifier-spot"}
    assert types["verifier"]["min_workers"] >= 1
    assert any(f"-m cluster.spot_drain {name} " in command for command in prepared(name)["worker_start_ray_commands"])


def test_every_command_has_the_token_and_its_options_exist(name: str) -> None:
    found = prepared(name)
    known = {option for parameter in start.params for option in parameter.opts}
    for role in ("head", "worker"):
        for command in found[f"{role}_start_ray_commands"]:
            assert command.startswith(". ~/.outrider/env;")
            if "ray start" in command:
                assert set(re.findall(r" (--[a-z-]+)", command)) <= known
    text = (CLUSTER / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"/outrider-{__version__}-py3-none-any.whl" in text
    assert "cp -r requirements ~/.outrider`" in text
    assert "| sh" not in text


@contextmanager
def metadata(answers: dict[str, tuple[HTTPStatus, str]]) -> Iterator[str]:
    """A cloud's metadata service on this machine; what is not among ``answers`` is not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (HTTPStatus.NOT_FOUND, ""))
            identified = "X-aws-ec2-metadata-token" in self.headers or "Metadata-Flavor" in self.headers
            if "token" not in self.path and not identified:
                status, text = HTTPStatus.UNAUTHORIZED, ""
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET  # noqa: N815  # the base class's name

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


TOKEN = {"/latest/api/token": (HTTPStatus.OK, "secret")}
ACTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"


def test_amazons_notice_is_heard() -> None:
    with metadata(TOKEN) as quiet:
        assert not taken_back_by_aws(quiet)
    with metadata(TOKEN | {ACTION: (HTTPStatus.OK, '{"action": "terminate"}')}) as notice:
        assert taken_back_by_aws(notice)
    with metadata(TOKEN | {ACTION: (HTTPStatus.INTERNAL_SERVER_ERROR, "")}) as broken, pytest.raises(HTTPError):
        taken_back_by_aws(broken)


def test_googles_notice_is_heard() -> None:
    for text, expected in (("FALSE", False), ("TRUE\n", True)):
        with metadata({PREEMPTED: (HTTPStatus.OK, text)}) as address:
            assert taken_back_by_gcp(address) is expected


def test_metadata_that_fails_for_a_moment_is_asked_again() -> None:
    answers: Iterator[OSError | bool] = iter([OSError("down"), False, True])
    waits: list[float] = []

    def taken_back() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    await_notice(taken_back, waits.append)
    assert len(waits) == 2


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_ray_knows_the_drain_command(cloud: str) -> None:
    _, command, *rest = drain_command("ab" * 28, cloud, 20)
    assert command == "drain-node"
    context = drain_node.make_context("drain-node", rest)
    assert context.params["reason"] == "DRAIN_NODE_REASON_PREEMPTION"
    assert 0 < context.params["deadline_remaining_seconds"] < 120


class _Commands:
    """Commands that fail so many times, each after some seconds of a clock of their own."""

    def __init__(self, failures: int, take_s: float) -> None:
        self.failures, self.take_s, self.now_s = failures, take_s, 0.0
        self.ran: list[list[str]] = []

    def output_of(self, command: list[str], deadline_s: float) -> str:
        self.ran.append(command)
        self.now_s += min(self.take_s, deadline_s)
        if self.take_s > deadline_s:
            raise subprocess.TimeoutExpired(command, deadline_s)
        self.failures -= 1
        if self.failures >= 0:
            raise subprocess.CalledProcessError(1, command)
        return "abcd\n"

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_a_failed_drain_is_tried_again_until_the_machine_goes(cloud: str) -> None:
    mended = _Commands(failures=3, take_s=1.0)
    assert drain(cloud, mended.output_of, lambda: mended.now_s, mended.wait)
    *_, last = mended.ran
    assert last[1:6] == ["drain-node", "--address", "auto", "--node-id", "abcd"]
    for hopeless in (_Commands(failures=1000, take_s=1.0), _Commands(failures=0, take_s=1e9)):
        assert not drain(cloud, hopeless.output_of, lambda: hopeless.now_s, hopeless.wait)  # noqa: B023 (called at once)
        assert hopeless.now_s <= {"aws": 120, "gcp": 30}[cloud]


def test_metadata_is_asked_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with metadata({}) as address, pytest.raises(HTTPError):
        taken_back_by_gcp(address)


def verified(text: str, folder: Path) -> str:
    """What systemd says of the unit, on a machine that has what it starts."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, found none")
    ray = folder / "ray"
    ray.write_text("#!/bin/sh\n", encoding="utf-8")
    ray.chmod(0o755)
    unit = folder / UNIT.name
    unit.write_text(text.replace("/opt/outrider/bin/ray", str(ray)), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert not verified(UNIT.read_text(encoding="utf-8"), tmp_path)


def test_systemd_finds_a_fault_in_a_unit(tmp_path: Path) -> None:
    assert "RestartSecs" in verified(UNIT.read_text(encoding="utf-8").replace("RestartSec=", "RestartSecs="), tmp_path)


def test_the_unit_starts_ray_with_options_that_it_has_and_ports_that_all_share() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    _, command, *options = shlex.split(line)
    assert command == "start"
    known = {option for parameter in start.params for option in parameter.opts}
    given = dict(option.partition("=")[::2] for option in options)
    assert set(given) <= known
    for cloud in ("aws", "gcp"):
        (worker,) = [one for one in prepared(cloud)["worker_start_ray_commands"] if "ray start" in one]
        for option in ("--node-manager-port", "--object-manager-port", "--min-worker-port", "--max-worker-port"):
            assert f"{option}={given[option]}" in worker


def test_the_service_can_read_its_interpreter() -> None:
    """As the unit hides homes: made by root, the environment's interpreter would lie in /root."""
    assert "ProtectHome=yes" in UNIT.read_text(encoding="utf-8")
    page = (CLUSTER / "jetson.md").read_text(encoding="utf-8")
    (made,) = [line for line in page.splitlines() if "uv venv" in line]
    (folder,) = re.findall(r"^sudo env UV_PYTHON_INSTALL_DIR=(\S+) ", made)
    assert folder.startswith("/opt/")
    (started,) = re.findall(r"^ExecStart=(\S+)/bin/ray ", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert made.endswith(f" {started}")


def test_the_page_has_every_setting_that_the_unit_reads() -> None:
    page = (CLUSTER / "jetson.md").read_text(encoding="utf-8")
    read = set(re.findall(r"\$\{(\w+)\}", UNIT.read_text(encoding="utf-8")))
    told = dict(re.findall(r"^(OUTRIDER_\w+)=(.*)$", page, flags=re.MULTILINE))
    assert set(told) == read
    assert json.loads(told["OUTRIDER_RESOURCES"].strip("'")) == {"jetson": 1}

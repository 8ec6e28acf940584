"""Dockerfiles keep to good practice, and agree with the package, the manifests and each other."""

import re
import runpy
import subprocess
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.deployment.manifests import OVERLAYS, ROOT, built

DOCKER = ROOT / "docker"
FILES = sorted(DOCKER.glob("*.Dockerfile"))
HADOLINT = Path(sys.executable).with_name("hadolint")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def dockerfile(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def linted(text: str) -> str:
    command = [str(HADOLINT), "--failure-threshold", "style", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    assert not linted(dockerfile.read_text(encoding="utf-8"))


def test_hadolint_finds_a_fault() -> None:
    assert "DL3007" in linted("FROM debian:latest\nUSER 1\n")


def test_images_run_as_a_plain_user_who_is_watched(dockerfile: Path) -> None:
    final = dockerfile.read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in final
    assert "\nHEALTHCHECK " in final
    for label in ("title", "version", "revision", "licenses"):
        assert f"org.opencontainers.image.{label}=" in final
    for group in built("small").groups.values():
        assert group.pod["securityContext"]["runAsUser"] == 10001


def test_all_nodes_have_the_same_python() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    versions = [
        re.findall(r"^ARG PYTHON_(?:VERSION=|IMAGE=python:)([\d.]+)", text, flags=re.MULTILINE) for text in texts
    ]
    assert all(len(found) == 1 for found in versions)
    (version,) = {found[0] for found in versions}
    assert version.startswith("3.11.")


def bases(text: str) -> list[str]:
    """Images that a Dockerfile starts from and are no stage of its own, arguments by their defaults."""
    given = dict(re.findall(r"^ARG (\w+)=(\S*)", text, flags=re.MULTILINE))
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, flags=re.MULTILINE))
    named = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    images = [re.sub(r"\$\{(\w+)\}", lambda match: given[match[1]], name) for name in named]
    return [image for image in images if image not in stages]


def test_nothing_is_taken_as_it_comes(dockerfile: Path) -> None:
    """Every image it starts from has a version for people and a digest for the builder."""
    found = bases(dockerfile.read_text(encoding="utf-8"))
    assert found
    for image in found:
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*@sha256:[0-9a-f]{64}", image), image


def test_the_readme_has_all_files_and_manifests_have_only_its_images() -> None:
    readme = (DOCKER / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(outrider-\S+)` \| `docker/(\S+)`", readme, flags=re.MULTILINE))
    assert set(rows.values()) == {path.name for path in FILES}
    used = {group.container["image"] for name in OVERLAYS for group in built(name).groups.values()}
    assert {image.rpartition("/")[2].partition(":")[0] for image in used} <= set(rows)


def test_the_builder_gets_what_it_installs() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    install = (DOCKER / "install.sh").read_text(encoding="utf-8")
    taken = set(re.findall(r"\$source/([a-z_.A-Z]+)", install))
    assert taken >= {"outrider", "actors", "serve_app", "cluster", "edge", "pyproject.toml", "requirements"}
    assert {f"!{name}" for name in taken} <= set(ignored)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the base class's name
        self.send_response(HTTPStatus.OK if self.path == "/well" else HTTPStatus.SERVICE_UNAVAILABLE)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_health_check_tells_well_from_ill() -> None:
    healthy = runpy.run_path(str(DOCKER / "healthy.py"))["healthy"]
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        found = healthy(f"{url}/well"), healthy(f"{url}/ill")
        server.shutdown()
        thread.join()
    assert found == (True, False)
    assert not healthy(url), "nobody listens there any more"

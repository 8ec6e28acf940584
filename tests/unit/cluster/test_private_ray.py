"""The embedded cluster's folder and token are its user's alone, and no link of somebody else's is followed."""

import os
import stat
from pathlib import Path

import pytest
from ray._private import ray_constants
from ray.util import get_node_ip_address

from cluster.private_ray import (
    check_address,
    check_authentication,
    listening_on_loopback,
    private_folder,
    protect_token,
)
from outrider.contracts.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_made_for_its_user_and_found_again(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert folder == private_folder(tmp_path)
    assert mode(folder) == 0o700


def test_sockets_have_room_in_the_folder_whatever_the_temporary_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/a/path/that/is/as/long/as/those/of/some/operating/systems")
    assert len(str(private_folder())) <= 36


def _open(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: folder.symlink_to(folder.parent), "a folder of yours"),
        (lambda folder: folder.symlink_to("nowhere"), "a folder of yours"),
        (lambda folder: folder.write_text(""), "a folder of yours"),
        (_open, "chmod 700"),
    ],
)
def test_a_folder_that_others_could_have_prepared_is_refused(tmp_path: Path, make: object, told: str) -> None:
    make(tmp_path / f"outrider-{os.getuid()}")  # type: ignore[operator]
    with pytest.raises(ConfigError, match=told):
        private_folder(tmp_path)


def test_a_token_is_made_once_and_read_by_nobody_else(tmp_path: Path) -> None:
    file = protect_token(tmp_path)
    token = file.read_text(encoding="ascii")
    assert len(token) == 64
    file.chmod(0o644)  # as Ray makes it
    assert protect_token(tmp_path).read_text(encoding="ascii") == token
    assert mode(file) == 0o600


def test_a_token_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("text", encoding="ascii")
    elsewhere.chmod(0o644)
    (tmp_path / ".ray" / "auth_token").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="yours alone"):
        protect_token(tmp_path)
    assert mode(elsewhere) == 0o644


@pytest.mark.parametrize("value", ["disabled", "DISABLED", ""])
def test_a_cluster_without_tokens_is_not_started(value: str) -> None:
    check_authentication({})
    check_authentication({"RAY_AUTH_MODE": "token"})
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE needs token"):
        check_authentication({"RAY_AUTH_MODE": value})


def test_other_clusters_of_the_process_listen_as_ray_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    with listening_on_loopback():
        assert get_node_ip_address() == "127.0.0.1"  # type: ignore[no-untyped-call]
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert ray_constants.ENABLE_RAY_CLUSTER


def test_a_node_that_other_machines_reach_is_refused() -> None:
    check_address("127.0.0.1")
    check_address("::1")
    with pytest.raises(ConfigError, match=r"10\.0\.0\.7"):
        check_address("10.0.0.7")

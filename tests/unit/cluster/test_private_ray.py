"""The embedded cluster is started with tokens alone, and nobody else reads its token."""

import stat
from pathlib import Path

import pytest

from cluster.private_ray import check_authentication, protect_token
from outrider.contracts.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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

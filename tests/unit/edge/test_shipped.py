"""What the device's unit and container say agrees with its program."""

import re

from setuptools import find_packages

from edge import main
from edge.wheel.setup import needed
from tests.budgets import ROOT


def test_a_device_has_nothing_of_paged_kv_and_schedulers() -> None:
    assert not [name for name in needed() if name.startswith(("outrider.engines.kv", "outrider.scheduling"))]


def test_what_builds_the_wheel_is_in_no_other() -> None:
    assert "edge" in (packages := find_packages(str(ROOT), include=["edge*"]))
    assert "edge.wheel" not in packages


def test_the_unit_does_not_start_anew_what_cannot_draft_as_configured() -> None:
    unit = (ROOT / "edge" / "outrider-edge.service").read_text(encoding="utf-8").splitlines()
    assert f"RestartPreventExitStatus={main.USER_ERROR}" in unit
    assert "User=outrider" in unit
    assert "useradd --system --user-group" in (ROOT / "docs" / "how-to" / "edge.md").read_text(encoding="utf-8")


def test_the_containers_user_owns_its_folders() -> None:
    text = (ROOT / "edge" / "Containerfile").read_text(encoding="utf-8")
    steps, _, rest = text.partition("\nUSER 10001\nVOLUME ")
    assert f"install -d -o outrider -g outrider {rest.splitlines()[0]}\n" in steps.rpartition("FROM ")[2]
    assert "\nENV XDG_CACHE_HOME=/var/cache" in steps


def test_the_unit_is_told_by_a_file_how_to_start() -> None:
    """And keeps drafters where `systemctl clean` finds them."""
    unit = (ROOT / "edge" / "outrider-edge.service").read_text(encoding="utf-8").splitlines()
    assert "EnvironmentFile=-/etc/outrider/edge.env" in unit
    assert "ExecStart=/opt/outrider-edge/bin/outrider-edge $OPTIONS" in unit
    assert "CacheDirectory=outrider-edge" in unit
    assert "/etc/outrider/edge.env" in (ROOT / "docs" / "how-to" / "device.md").read_text(encoding="utf-8")


def test_every_option_that_the_page_names_exists() -> None:
    text = (ROOT / "docs" / "how-to" / "device.md").read_text(encoding="utf-8")
    for line in re.findall(r"outrider-edge (--connect wss:[^`\n]*)", text):
        main.parser().parse_args(line.rstrip('\\ "').split())

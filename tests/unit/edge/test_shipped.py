"""What the device's unit and container say agrees with its program."""

from edge import main
from tests.budgets import ROOT


def test_the_unit_does_not_start_anew_what_cannot_draft_as_configured() -> None:
    unit = (ROOT / "edge" / "outrider-edge.service").read_text(encoding="utf-8").splitlines()
    assert f"RestartPreventExitStatus={main.USER_ERROR}" in unit
    assert "User=outrider" in unit
    assert "useradd --system --user-group" in (ROOT / "docs" / "how-to" / "edge.md").read_text(encoding="utf-8")


def test_the_containers_user_owns_the_folder_of_the_socket() -> None:
    steps, _, _ = (ROOT / "edge" / "Containerfile").read_text(encoding="utf-8").partition("\nUSER 10001\nVOLUME ")
    assert "install -d -o outrider -g outrider /var/lib/outrider /run/outrider" in steps.rpartition("FROM ")[2]

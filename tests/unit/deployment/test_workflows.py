"""Workflows parse, pin what they use, and ask for nothing that is not there."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from outrider import __version__
from tests.unit.deployment.manifests import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOTES = runpy.run_path(str(ROOT / ".github" / "release_notes.py"))["notes"]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_there_is_one_for_each_purpose() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "images", "release"}


def test_jobs_have_what_they_need_and_an_end(workflow: Path) -> None:
    found = read(workflow)
    assert found[True], "on: YAML reads it as true"
    assert found["permissions"] == {"contents": "read"}, "more is for the job that needs it"
    for job in found["jobs"].values():
        elsewhere = [
            one["machine"] for one in job.get("strategy", {}).get("matrix", {}).get("include", []) if "machine" in one
        ]
        for machine in elsewhere or [job["runs-on"]]:
            assert re.fullmatch(r"ubuntu-\d\d\.\d\d(-arm)?|macos-\d\d", machine)
        assert job["timeout-minutes"] <= 120
        assert set(job.get("needs", "").split()) <= set(found["jobs"])
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step), step


def test_actions_are_pinned_by_their_commit(workflow: Path) -> None:
    lines = re.findall(r"uses: .*", workflow.read_text(encoding="utf-8"))
    assert lines
    for line in lines:
        assert re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_one_action_has_one_commit_everywhere() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step}
    names = [one.partition("@")[0] for one in used]
    assert len(set(names)) == len(names)


def test_a_release_is_attested_with_its_hashes_and_a_bill_of_materials() -> None:
    build, publish = (read(ROOT / ".github/workflows/release.yml")["jobs"][name] for name in ("build", "publish"))
    commands = [step.get("run", step.get("uses", "")) for step in build["steps"]]
    (made,) = [number for number, one in enumerate(commands) if "sha256sum" in one]
    (attested,) = [number for number, one in enumerate(commands) if one.startswith("actions/attest-build-provenance@")]
    assert made < attested, "what is attested is whole"
    assert "cyclonedx" in commands[made]
    assert build["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    (uploaded,) = [step["run"] for step in publish["steps"] if "publish --trusted" in step.get("run", "")]
    assert uploaded.endswith(" dist/*.whl dist/*.tar.gz"), "an index takes nothing else"


def test_pins_are_looked_at() -> None:
    found = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    assert {one["package-ecosystem"] for one in found["updates"]} == {"github-actions", "docker", "pip"}
    for one in found["updates"]:
        assert (ROOT / one["directory"].lstrip("/")).is_dir()


def test_the_makefile_has_every_target_that_is_made() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    made = {
        target
        for path in WORKFLOWS
        for step in steps(path)
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    }
    assert made == {"check", "test"}
    assert made <= targets


def test_versions_of_python_are_those_that_the_package_takes() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    checked = jobs["check"]
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    taken = SpecifierSet(tomllib.loads(pyproject)["project"]["requires-python"])
    found = {one["python"] for one in jobs["installs"]["strategy"]["matrix"]["include"]}
    assert {*checked["strategy"]["matrix"]["python"], *found} == {
        f"3.{minor}" for minor in range(99) if f"3.{minor}" in taken
    }
    for version in checked["strategy"]["matrix"]["python"]:
        assert f'"Programming Language :: Python :: {version}"' in pyproject


def test_files_that_steps_name_exist(workflow: Path) -> None:
    for step in steps(workflow):
        for path in re.findall(r"(?:\.github/[\w.]+\.py|outrider/[\w.]+\.py|constraints\.txt)", step.get("run", "")):
            assert (ROOT / path).exists(), path


PACKAGE = f'__version__ = "{__version__}"\n'


def test_notes_are_the_versions_own_section() -> None:
    changelog = f"# Changelog\n\n## {__version__} (2026-11-30)\n\nNew.\n\n## 0.0.9 (2026-01-01)\n\nOld.\n"
    assert NOTES(__version__, PACKAGE, changelog) == "New.\n"


@pytest.mark.parametrize(
    ("version", "changelog", "found"),
    [
        ("9.9.9", "## 9.9.9 (2026-11-30)\n\nNew.\n", "in outrider/__init__.py, found another"),
        (__version__, "## 0.0.9 (2026-01-01)\n\nOld.\n", "found none"),
        (__version__, f"## {__version__} (unreleased)\n\nNew.\n", r"found \(unreleased\)"),
    ],
)
def test_a_release_that_is_not_ready_is_refused(version: str, changelog: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        NOTES(version, PACKAGE, changelog)


def test_the_changelog_has_this_version() -> None:
    assert re.search(rf"^## {__version__} \(", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_documents_name_files_that_exist() -> None:
    for name in (
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docker/README.md",
        "docs/how-to/operations.md",
        "cluster/jetson.md",
    ):
        folder = (ROOT / name).parent
        for path in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8")):
            assert (folder / path).exists(), f"{name}: {path}"


def test_an_image_without_its_torch_is_left_out() -> None:
    """Its build stops without one: the job would fail wherever nobody has named it."""
    (build,) = [
        one for one in steps(ROOT / ".github/workflows/images.yml") if "build-push-action" in one.get("uses", "")
    ]
    assert build["if"] == "matrix.image != 'outrider-jetson' || matrix.torch_index != ''"
    assert 'test -n "${TORCH_INDEX_URL}"' in (ROOT / "docker/jetson.Dockerfile").read_text(encoding="utf-8")


def test_the_workflow_builds_every_image() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "images.yml")["jobs"]["image"]["strategy"]["matrix"]["include"]
    assert {one["file"] for one in matrix} == {path.name for path in (ROOT / "docker").glob("*.Dockerfile")}
    readme = (ROOT / "docker" / "README.md").read_text(encoding="utf-8")
    assert {one["image"] for one in matrix} == set(re.findall(r"^\| `(outrider-\S+)`", readme, flags=re.MULTILINE))

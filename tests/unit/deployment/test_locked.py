"""Requirements with hashes are whole, agree with constraints.txt and pyproject.toml, and are what is installed."""

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deployment.manifests import ROOT

FILES = sorted((ROOT / "requirements").glob("locked*.txt"))
LOCK = runpy.run_path(str(ROOT / "requirements" / "lock.py"))
INSTALLERS = [
    ROOT / "docker" / "install.sh",
    *(ROOT / "cluster" / one for one in ("aws.yaml", "gcp.yaml", "docker.yaml", "jetson.md")),
]
ENTRY = r"[a-z0-9-]+==[\w.!]+( \\\n {4}--hash=sha256:[0-9a-f]{64})+"


def locked(name: str) -> dict[str, str]:
    """Versions by package."""
    blocks = LOCK["entries"]((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"))
    return {package: block.split()[0].partition("==")[2] for package, block in blocks.items()}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in pins}


def needed(extras: tuple[str, ...] = ()) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [
        Requirement(one) for one in [*project["dependencies"], *(one for extra in extras for one in optional[extra])]
    ]


def faults(text: str) -> list[str]:
    """Entries of a locked file that are no name, version and hashes; an index is none of its business."""
    return [block for block in LOCK["entries"](text).values() if not re.fullmatch(ENTRY, block)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_entry_has_a_version_and_hashes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert locked(path.stem)
    assert not faults(text)
    assert "://" not in text


@pytest.mark.parametrize("bad", ["ray==2.60.0\n", "ray>=2 \\\n    --hash=sha256:" + "0" * 64, "--index-url x\n"])
def test_an_entry_without_version_or_hash_is_found(bad: str) -> None:
    good = (ROOT / "requirements" / "locked-uv.txt").read_text(encoding="utf-8")
    assert faults(good + bad)


def test_versions_are_those_of_constraints() -> None:
    pins = constraints()
    for name in ("locked", "locked-torch"):
        assert locked(name).items() <= pins.items()
    for name in ("locked-cuda", "locked-vllm"):  # clouds' SDKs take what developers have besides in other versions
        assert {package: pins.get(package, version) for package, version in locked(name).items()} == locked(name)


def test_a_package_has_one_version() -> None:
    """And what all machines have is in one file alone; a cloud's SDK and vLLM may share a package."""
    pins = [pin for path in FILES for pin in locked(path.stem).items()]
    assert len(dict(pins)) == len(set(pins))
    common = [package for name in ("locked", "locked-torch", "locked-cuda") for package in locked(name)]
    beside = {package for name in ("locked-vllm", "locked-aws", "locked-gcp") for package in locked(name)}
    assert len(set(common)) == len(common)
    assert not beside & set(common)


def test_all_that_the_package_asks_for_is_locked() -> None:
    whole = locked("locked") | locked("locked-torch")
    for one in needed(("tracing",)):
        assert one.specifier.contains(whole[canonicalize_name(one.name)]), one
    for extra in ("vllm", "aws", "gcp"):
        for one in needed((extra,)):
            assert one.specifier.contains((whole | locked(f"locked-{extra}"))[canonicalize_name(one.name)]), one


def test_what_is_locked_needs_nothing_else() -> None:
    """By the metadata of what is installed here: a torch without CUDA."""
    whole = locked("locked") | locked("locked-torch")
    todo, seen = needed(("tracing",)), set[str]()
    while todo:
        one = todo.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        assert canonicalize_name(one.name) in whole, one
        for more in map(Requirement, metadata.requires(one.name) or []):
            if any(more.marker is None or more.marker.evaluate({"extra": extra}) for extra in one.extras | {""}):
                todo.append(more)
    assert len(seen) > 100


@pytest.mark.parametrize("path", INSTALLERS, ids=lambda path: path.name)
def test_nothing_is_installed_without_a_hash(path: Path) -> None:
    """But Outrider's own wheel, which is built from a checkout and fetches nothing."""
    found = [line for line in path.read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert found
    for line in found:
        assert "--require-hashes" in line or "--no-deps" in line, line
    named = set(re.findall(r"\blocked[\w-]*\.txt", path.read_text(encoding="utf-8")))
    assert named & {"locked.txt", "locked-drafter.txt"}
    assert named <= {path.name for path in FILES}


def test_a_lock_is_divided_by_who_needs_it() -> None:
    torch, *_ = LOCK["TORCH_CPU_SHA256"]
    base = {"torch": torch, "ray": "ray==1", "triton": "triton==3"}
    divided = LOCK["divide"](base, base | {"vllm": "vllm==1"}, ["torch", "ray"])
    assert {name: set(blocks) for name, blocks in divided.items()} == {
        "locked": {"ray"},
        "locked-torch": {"torch"},
        "locked-cuda": {"triton"},
        "locked-vllm": {"vllm"},
    }
    with pytest.raises(ValueError, match="'ray'"):
        LOCK["divide"](base, base | {"ray": "ray==2"}, ["torch", "ray"])

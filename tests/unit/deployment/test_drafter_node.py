"""A device that drafts as a node of the Ray cluster needs what requirements/drafter.txt says, and nothing else."""

import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deployment.manifests import ROOT
from tests.unit.deployment.test_locked import LOCK, constraints, needed

LINES = (ROOT / "requirements" / "drafter.txt").read_text(encoding="utf-8").splitlines()
ASKED = [Requirement(line) for line in LINES if not line.startswith("#")]
NODE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # importing any of these is an ImportError
import ray.scripts.scripts
from actors.drafter.actor import DrafterActor, DrafterCard
from actors.engine_thread import card_of
from outrider.assembly.drafters import build_drafter
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
spec = DrafterSpec("torch", "embedded", "embedded", "float32", "cpu", 1, EngineLimits(2**24))
built = build_drafter(spec)
print(card_of(DrafterCard, built.facts, built.engine))
"""


def with_their_own(asked: Iterable[Requirement]) -> set[str]:
    """Names of these and of all that they need, by the metadata of what is installed."""
    todo, seen = list(asked), set[str]()
    names = set[str]()
    while todo:
        one = todo.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        names.add(canonicalize_name(one.name))
        todo += [
            more
            for more in map(Requirement, metadata.requires(one.name) or [])
            if any(more.marker is None or more.marker.evaluate({"extra": extra}) for extra in one.extras | {""})
        ]
    return names


def test_a_drafter_is_built_where_nothing_else_can_be_imported() -> None:
    ray_brings = {"colorama", "psutil", "setproctitle"}
    allowed = with_their_own(ASKED) | ray_brings | {"outrider", "setuptools", "pip"}
    others = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed and module not in sys.stdlib_module_names
    ]
    assert {"fastapi", "starlette", "llguidance", "onnx", "onnxruntime", "gguf", "httpx", "vllm"} & set(others)
    done = subprocess.run(
        [sys.executable, "-c", NODE, *others], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DrafterCard" in done.stdout


def test_any_torch_of_a_jetpack_will_do_and_the_rest_is_as_on_servers() -> None:
    (torch,) = [one for one in ASKED if one.name == "torch"]
    assert all(torch.specifier.contains(version) for version in ("2.8.0", "2.10.0", constraints()["torch"]))
    servers = {one.name: one.specifier for one in needed()}
    for one in ASKED:
        assert one.specifier.contains(constraints()[canonicalize_name(one.name)])
        if one.name not in {"torch", "ray"}:
            assert one.specifier == servers[one.name], "one range everywhere"


@pytest.mark.parametrize("name", ["fastapi", "llguidance", "onnxruntime", "starlette"])
def test_what_is_locked_is_theirs_without_torch(name: str) -> None:
    whole, locked = (
        LOCK["entries"]((ROOT / "requirements" / f"{file}.txt").read_text(encoding="utf-8"))
        for file in ("locked", "locked-drafter")
    )
    without_torch = with_their_own(one for one in ASKED if one.name != "torch")
    torchs = with_their_own(one for one in ASKED if one.name == "torch")
    assert locked.items() <= whole.items(), "the same hashes"
    assert without_torch <= set(locked), "all that they need is in it"
    assert set(locked) <= without_torch | torchs | {"setuptools"}
    assert name not in locked

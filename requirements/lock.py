"""Write ``requirements/locked*.txt``: what images, clouds and devices install, with the SHA-256 of every file.

In a virtual environment of its own (Python 3.11), with the index that UV_DEFAULT_INDEX names or else Python's own:

    pip install --require-hashes -r requirements/locked-uv.txt
    python requirements/lock.py

Versions are those of constraints.txt. What that file lacks (CUDA's libraries, vLLM's dependencies) keeps the version
of the files there are; delete one of them to have its versions chosen anew.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
CONSTRAINTS = (FOLDER.parent / "constraints.txt").read_text(encoding="utf-8")
UV = "uv==0.9.5"
# An index other than Python's own has torch without CUDA. uv reads only one index for a package, so these are by hand:
# the builds for Python 3.11 on Linux, from that index's page.
TORCH_CPU_SHA256 = {
    "torch==2.13.0": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",  # x86_64
        "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",  # aarch64
    )
}
HEADS = {
    "locked": "What Outrider needs on any machine, its tracing included, but torch: its build is the machine's.",
    "locked-torch": "torch: the builds of Python's own index, and those without CUDA for Python 3.11 on Linux.",
    "locked-cuda": "What the torch of Python's own index needs on top of locked.txt: CUDA's libraries.",
    "locked-vllm": "What the extra `vllm` needs on top of locked.txt, locked-torch.txt and locked-cuda.txt.",
    "locked-drafter": "What drafter.txt needs: entries of locked.txt. torch is the device's own, or locked-torch.txt.",
    "locked-aws": "What the extra `aws` needs on top of locked.txt: Amazon's SDK, by which a head starts machines.",
    "locked-gcp": "What the extra `gcp` needs on top of locked.txt: Google's, likewise.",
    "locked-uv": "uv, which installs all else on rented machines and Jetsons.",
}


def entries(text: str) -> dict[str, str]:
    """Requirements of a locked file by name, each with its lines of hashes."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return {block.partition("==")[0]: block for block in re.split(r"\n(?=\S)", lines.strip()) if block}


def divide(base: dict[str, str], with_vllm: dict[str, str], constrained: Iterable[str]) -> dict[str, dict[str, str]]:
    """Entries by the file that they belong to.

    Raises:
        ValueError: vLLM wants another version of what all machines have, so that one set of files cannot serve both.
    """
    if other := [name for name in base if with_vllm.get(name) != base[name]]:
        raise ValueError(f"needs one version of each package for all machines, found others for vLLM: {other}")
    known = set(constrained)
    torch = base["torch"]
    version = torch.split()[0]
    extra = "".join(f" \\\n    --hash=sha256:{one}" for one in TORCH_CPU_SHA256[version])
    rest = {name: block for name, block in base.items() if name != "torch"}
    return {
        "locked": {name: block for name, block in rest.items() if name in known},
        "locked-torch": {"torch": torch + extra},
        "locked-cuda": {name: block for name, block in rest.items() if name not in known},
        "locked-vllm": {name: block for name, block in with_vllm.items() if name not in base},
    }


def compiled(requirements: list[str], pins: str = CONSTRAINTS) -> dict[str, str]:
    """Those and all that they need on Linux, in these versions where they are pinned, resolved by uv."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, out, pinned = (Path(folder, f"{name}.txt") for name in ("wanted", "out", "pinned"))
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        pinned.write_text(pins, encoding="utf-8")
        # uv keeps versions that it finds in its output where they fit. Their hashes it has to read anew.
        found = (entries(path.read_text(encoding="utf-8")).values() for path in FOLDER.glob("locked*.txt"))
        out.write_text("\n".join(block.split()[0] for blocks in found for block in blocks), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--python-version=3.11", "--output-file", str(out)]
        command += ["--python-platform=x86_64-manylinux_2_28", "--constraints", str(pinned)]
        subprocess.run([*command, str(wanted)], check=True)
        return entries(out.read_text(encoding="utf-8"))


def main() -> None:
    """Write all files."""
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    # setuptools builds Outrider's own wheel, without a download of its own.
    base = [*project["dependencies"], *extras["tracing"], "setuptools"]
    names = re.findall(r"^([\w.-]+)==", CONSTRAINTS, re.MULTILINE)
    constrained = [re.sub(r"[-_.]+", "-", name).lower() for name in names]
    needed = compiled(base)
    divided = divide(needed, compiled([*base, *extras["vllm"]]), constrained)
    for cloud in ("aws", "gcp"):  # beside what machines have; constraints.txt pins what developers have besides
        sdk = compiled(extras[cloud], "\n".join(block.split()[0] for block in needed.values()))
        divided[f"locked-{cloud}"] = {name: block for name, block in sdk.items() if name not in needed}
    wanted = compiled((FOLDER / "drafter.txt").read_text(encoding="utf-8").splitlines())
    divided["locked-drafter"] = {name: block for name, block in divided["locked"].items() if name in wanted}
    for name, blocks in (divided | {"locked-uv": compiled([UV])}).items():
        head = f"# {HEADS[name]}\n# Written by requirements/lock.py, which says how.\n"
        (FOLDER / f"{name}.txt").write_text(head + "\n".join(blocks.values()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The clients and their environments: one for each, none of them the product's own.

``pins/CLIENT.txt`` lists a client and its dependencies in exact versions, as by ``pip freeze``.
``docs/reference/clients.md`` says what is not among them, and why.
"""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

PINS = Path(__file__).parent / "pins"


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its package and its script."""

    name: str
    module: str

    @property
    def pins(self) -> Path:
        return PINS / f"{self.name}.txt"

    @property
    def version(self) -> str:
        """Version of the client's package."""
        lines = self.pins.read_text(encoding="utf-8").splitlines()
        found = {name.replace("_", "-"): version for name, _, version in (line.partition("==") for line in lines)}
        return found[self.name]


CLIENTS = (
    Client("openai", "lab.bench.clients.asking.with_openai"),
    Client("langchain-openai", "lab.bench.clients.asking.with_langchain"),
    Client("litellm", "lab.bench.clients.asking.with_litellm"),
    Client("lm-eval", "lab.bench.clients.asking.with_lm_eval"),
)


def python_of(client: Client, folder: Path) -> Path:
    """Return the interpreter of a client's environment, creating it in ``folder`` if needed.

    Raises:
        CalledProcessError: a package cannot be installed.
    """
    home = folder / f"{client.name}-{hashlib.sha256(client.pins.read_bytes()).hexdigest()[:12]}"
    python, complete = home / "bin" / "python", home / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not complete.is_file():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(client.pins)]
            subprocess.run(pip, check=True)
            complete.touch()
    return python

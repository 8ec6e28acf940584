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

PINS, ASKING = Path(__file__).with_name("pins"), Path(__file__).with_name("asking")


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its package and its script, a module of Python or a file for Node beside the others."""

    name: str
    script: str

    @property
    def is_node(self) -> bool:
        return self.script.endswith(".cjs")

    def command(self, home: Path) -> list[str]:
        """Begin the command line of its script; ``home`` is its environment."""
        if self.is_node:
            return ["node", str(ASKING / self.script)]
        return [str(home / "bin" / "python"), "-m", f"lab.bench.clients.asking.{self.script}"]

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
    Client("openai", "with_openai"),
    Client("anthropic", "with_anthropic"),
    Client("openai-agents", "with_openai_agents"),
    Client("pydantic-ai-slim", "with_pydantic_ai"),
    Client("langchain-openai", "with_langchain"),
    Client("litellm", "with_litellm"),
    Client("llama-index-llms-openai-like", "with_llama_index"),
    Client("lm-eval", "with_lm_eval"),
    Client("ai", "with_ai.cjs"),
)


def home_of(client: Client, folder: Path) -> Path:
    """Return the folder of a client's environment, creating it in ``folder`` if needed.

    Raises:
        CalledProcessError: a package cannot be installed.
    """
    home = folder / f"{client.name}-{hashlib.sha256(client.pins.read_bytes()).hexdigest()[:12]}"
    complete = home / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not complete.is_file():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            _install(client, home)
            complete.touch()
    return home


def _install(client: Client, home: Path) -> None:
    if client.is_node:
        packages = client.pins.read_text(encoding="utf-8").replace("==", "@").split()
        npm = ["npm", "install", "--prefix", str(home), "--silent", "--no-save", "--ignore-scripts", *packages]
        subprocess.run(npm, check=True)
        return
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(client.pins)]
    subprocess.run(pip, check=True)

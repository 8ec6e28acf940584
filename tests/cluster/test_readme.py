"""The README's examples, run as they stand against the running service."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cluster.conftest import Service

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "http://127.0.0.1:8000"


def snippets(language: str) -> list[str]:
    """Code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(command: list[str], source: str, service: Service) -> str:
    """Run a snippet with the service's own address."""
    assert ADDRESS in source
    done = subprocess.run(
        command, input=source.replace(ADDRESS, service.url), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_curl_example_answers_as_printed(service: Service) -> None:
    (source,) = [s for s in snippets("sh") if s.startswith("curl")]
    (printed,) = [s for s in snippets("json") if "choices" in s]
    (content,) = re.findall(r'"content": "(.*?)"', printed)
    assert f'"content":"{content}"' in run(["bash", "-e"], source, service)


def test_the_openai_examples_run(service: Service) -> None:
    (source,) = snippets("python")
    output = run([sys.executable, "-W", "error", "-"], source, service)
    assert "'lossless': True" in output
    assert len(output.splitlines()) >= 2


def test_chat_and_top_run_as_shown(service: Service) -> None:
    (source,) = [s for s in snippets("sh") if s.startswith("outrider chat")]
    chat, top = (line.replace("outrider", f"{sys.executable} -m cluster.cli", 1) for line in source.splitlines())
    said = shell(f"{chat} --url {service.url} --temperature 0")
    assert "The capital of France is Paris." in said
    assert "TTFT" in said
    assert "drafter-embedded-0" in shell(f"{top} --url {service.url} --once")


def shell(command: str) -> str:
    """Run one line and return what it prints."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_configuration_examples_are_valid() -> None:
    (source,) = [s for s in snippets("sh") if "outrider config show" in s]
    assert "outrider config show" in source
    for line in source.splitlines():
        arguments = line.split()[2:] if line.startswith("outrider serve --set") else []
        if arguments:
            checked = subprocess.run(
                [sys.executable, "-m", "cluster.cli", "config", "check", *arguments],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert checked.returncode == 0, checked.stderr

"""The examples of the README and of how-tos, run as they stand against the running service."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cluster.served import Service

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md")))
ADDRESS = "http://127.0.0.1:8000"


def snippets(language: str, *pages: Path) -> list[str]:
    """Code blocks of one language; without ``pages`` those of all pages."""
    texts = (page.read_text(encoding="utf-8") for page in pages or PAGES)
    return [block for text in texts for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


def asked(page: str) -> tuple[str, str]:
    """A page's request by curl, and the answer that it prints."""
    (source,) = [block for block in snippets("sh", ROOT / page) if block.startswith("curl")]
    (printed,) = snippets("json", ROOT / page)
    return source, printed


def run(command: list[str], source: str, service: Service) -> str:
    """Run a snippet with the service's own address."""
    assert ADDRESS in source
    done = subprocess.run(
        command, input=source.replace(ADDRESS, service.url), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_curl_examples_answer_as_printed(service: Service) -> None:
    source, printed = asked("README.md")
    semantic, judged = asked("docs/how-to/semantic-verification.md")
    promised, slo = asked("docs/how-to/promises.md")
    (content,) = re.findall(r'"content": "(.*?)"', printed)
    assert f'"content":"{content}"' in run(["bash", "-e"], source, service)
    usage = json.loads(run(["bash", "-e"], semantic, service))["usage"]["outrider"]
    shown = json.loads(judged)["usage"]["outrider"]
    assert shown.keys() <= usage.keys()
    assert (usage["verification"], usage["reproducible"]) == (shown["verification"], shown["reproducible"])
    answered = json.loads(run(["bash", "-e"], promised, service))["usage"]["outrider"]["slo"]
    expected = json.loads(slo)["usage"]["outrider"]["slo"]
    assert answered.keys() == expected.keys()
    assert all(answered[key] == expected[key] for key in ("class", "promised_tokens_per_s"))


def test_the_openai_examples_run(service: Service) -> None:
    (source,) = snippets("python")
    output = run([sys.executable, "-W", "error", "-"], source, service)
    assert "'lossless': True" in output
    assert len(output.splitlines()) >= 2


def test_chat_and_top_run_as_shown(service: Service) -> None:
    chat, top = commands("outrider chat"), commands("outrider top")
    said = [shell(f"{line} --url {service.url} --temperature 0") for line in chat]
    assert "The capital of France is Paris." in said[0]
    assert len(said) > 1
    assert all("TTFT" in text for text in said)
    assert all("drafter-embedded-0" in shell(f"{line} --url {service.url} --once") for line in top)
    assert top


def commands(beginning: str) -> list[str]:
    """All lines of shell examples that begin so, for this environment."""
    lines = [line for snippet in snippets("sh") for line in snippet.splitlines() if line.startswith(beginning)]
    return [line.replace("outrider", f"{sys.executable} -m cluster.cli", 1) for line in lines]


def shell(command: str) -> str:
    """Run one line and return what it prints."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_configuration_examples_are_valid() -> None:
    examples = commands("outrider serve --set")
    assert len(examples) > 1
    for line in examples:
        shell(line.replace(" serve ", " config check ", 1))

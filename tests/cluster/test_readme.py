"""The examples of the README, of tutorials and of how-tos, run as they stand against the running service."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cluster.served import Service

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted((DOCS / "how-to").glob("*.md")), *sorted((DOCS / "tutorials").glob("*.md")))
FIRST, NETWORK = DOCS / "tutorials" / "first-service.md", DOCS / "tutorials" / "emulate-a-network.md"
ADDRESS = "http://127.0.0.1:8000"


def snippets(language: str, *pages: Path) -> list[str]:
    """Code blocks of one language, '' if none is named; without ``pages`` those of all pages."""
    texts = (page.read_text(encoding="utf-8") for page in pages or PAGES)
    blocks = (found for text in texts for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    return [block for found, block in blocks if found == language]


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
    source, responses, _ = snippets("python", DOCS / "how-to" / "ask.md")
    output = run([sys.executable, "-W", "error", "-"], source + responses, service)
    assert "'lossless': True" in output
    assert len(output.splitlines()) >= 3
    assert "Paris" in output.splitlines()[-1]


def test_the_anthropic_example_runs(service: Service) -> None:
    *_, source = snippets("python", DOCS / "how-to" / "ask.md")
    assert run([sys.executable, "-"], source, service).strip()


def test_the_first_tutorial_s_requests_answer_as_printed(service: Service) -> None:
    asking, status = (block for block in snippets("sh", FIRST) if block.startswith("curl"))
    answer, known = map(json.loads, snippets("json", FIRST))
    told = json.loads(run(["bash", "-e"], asking, service))
    (choice,), (shown,) = told["choices"], answer["choices"]
    assert choice["message"]["content"] == shown["message"]["content"]
    assert answer["usage"]["outrider"].keys() <= told["usage"]["outrider"].keys()
    running = json.loads(run(["bash", "-e"], status, service))
    assert known.keys() <= running.keys()
    for part in ("drafters", "coordinators"):
        assert known[part][0].keys() <= running[part][0].keys()
    source, streamed = snippets("python", FIRST)
    output = run([sys.executable, "-W", "error", "-"], source + streamed, service)
    assert output.splitlines()[0] == shown["message"]["content"]
    assert "'origin': 'accepted'" in output
    assert re.fullmatch(r"\d+ rounds", output.splitlines()[-1])


def test_the_network_tutorial_compares_protocols(service: Service) -> None:
    """On this service's link, which delays nothing: the table's form, and that every protocol drafts."""
    (asking,), (told,) = (
        [block for block in snippets("sh", NETWORK) if block.startswith("curl")],
        snippets("json", NETWORK),
    )
    shown, usage = json.loads(told)["usage"]["outrider"], json.loads(run(["bash", "-e"], asking, service))["usage"]
    assert shown.keys() <= usage["outrider"].keys()
    assert "dssd" in usage["outrider"]["protocols"]
    (source,) = snippets("python", NETWORK)
    head, *rows = run([sys.executable, "-W", "error", "-"], source, service).splitlines()
    (printed,) = (block for block in snippets("", NETWORK) if block.startswith("protocol"))
    assert head == printed.splitlines()[0]
    assert [row.split()[0] for row in rows] == [row.split()[0] for row in printed.splitlines()[1:]]
    assert all(row.split()[-1] != "0" for row in rows[1:])


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


def test_the_table_s_tutorial_prints_its_rows() -> None:
    """A smaller run of its first command: the page's rows, and what the paper printed; figures are drawn."""
    first, *_ = commands("outrider bench paper dssd")
    printed = shell(f"{first.partition(' --')[0]} --prompts 1 --tokens 8")
    (table,) = (block for block in snippets("", DOCS / "tutorials" / "reproduce-a-table.md") if "NTT" in block)
    rows = [line for line in table.splitlines() if line.startswith(" ") and "NTT" not in line]
    for row in rows:
        beginning, *_, published, both = re.split(r" {2,}", row.strip())
        assert any(line.strip().startswith(beginning) and line.rstrip().endswith(both) for line in printed.splitlines())
        assert published in printed
    assert len(rows) > 1


def test_the_benchmarks_have_the_options_that_pages_name() -> None:
    lines = commands("outrider bench")
    helps = {name: shell(f"{name} --help") for name in {line.partition(" --")[0] for line in lines}}
    for line in lines:
        assert all(option in helps[line.partition(" --")[0]] for option in re.findall(r" (--\w+)", line))
    assert len(lines) > 2

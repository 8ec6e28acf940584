import json
import os
import pty
import signal
import sys
from dataclasses import asdict
from subprocess import DEVNULL, Popen

import pytest

from cluster.cli import main
from cluster.top_view import duration
from outrider.selection.tuning.report import TunerReport
from tests.unit.cluster.recorded_service import Answer, serving

COORDINATOR = {
    "id": "coordinator-1",
    "verifier": "ready",
    "uptime_s": 3725.0,
    "generations": 3,
    "queued_generations": 2,
    "queued_blocks": 1,
    "rounds": 100,
    "speculative_rounds": 80,
    "drafted_tokens": 200,
    "accepted_tokens": 150,
    "committed_tokens": 250,
    "phase_seconds": {"verify": 4.0, "draft": 2.0, "link": 0.5, "queue": 0.1, "orchestration": 0.2},
    "verifier_idle_s": 3000.0,
    "regime": asdict(
        TunerReport("draft", "none", (("none", ()), ("draft", ())), (("none", 0), ("draft", 1)), 0.5, 90.0, 0)
    ),
    "kv": {
        "block_tokens": 16,
        "total_blocks": 100,
        "used_blocks": 25,
        "cached_blocks": 5,
        "generations": 3,
        "evictions": 7,
    },
}
DRAFTERS: list[dict[str, object]] = [
    {"name": "drafter-e-0", "group": "e", "state": "ready", "reason": None, "generations": 3, "capacity": 32},
    {
        "name": "drafter-e-1",
        "group": "e",
        "state": "refused",
        "reason": "other tokens",
        "generations": 0,
        "capacity": 32,
    },
]


def status(after: int) -> str:
    """What the service says; each poll finds 10 rounds of 30 tokens more."""
    coordinator = COORDINATOR | {"rounds": 100 + 10 * after, "committed_tokens": 250 + 30 * after}
    return json.dumps({"model": "some-model", "coordinators": [coordinator], "drafters": DRAFTERS})


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_once_prints_the_picture_of_two_polls(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda _, number: Answer(status(number))) as service:
        assert main(["top", "--once", "--interval-s", "0.05", "--url", service.url + "/"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {words[0]: words for line in lines if (words := line.split())}
    assert lines[0] == f"some-model  {service.url}  up 01:02:05"
    assert rows["drafter-e-0"] == ["drafter-e-0", "e", "ready", "3/32"]
    assert rows["drafter-e-1"] == ["drafter-e-1", "e", "refused", "0/32", "other", "tokens"]
    found = " ".join(rows["coordinator-1"])
    assert found == "coordinator-1 ready none (tries draft) 0% 3 2 1 25% of 1600 tokens 7"
    assert rows["accepted"] == ["accepted", "fraction", "-", "0.750"]
    per_round = next(words for words in map(str.split, lines) if words[-4:-2] == ["per", "round"])
    assert per_round == ["committed", "tokens", "per", "round", "3.00", "2.55"]
    assert rows["draft"][:3] == ["draft", "0.00", "18.18"]


def test_promises_are_summed_over_coordinators_by_class(capsys: pytest.CaptureFixture[str]) -> None:
    fast = {"rounds": 30, "late_queue": 6, "late_compute": 3, "behind": 2}
    slow = {"rounds": 8, "late_queue": 0, "late_compute": 0, "behind": 0}
    unknown = {"rounds": 0, "late_queue": 0, "late_compute": 0, "behind": 0}
    coordinators = [
        COORDINATOR | {"slo": {"speed_8": fast, "speed_2": slow}},
        COORDINATOR | {"id": "coordinator-2", "slo": {"speed_8": fast | {"rounds": 10, "late_compute": 0}}},
        COORDINATOR | {"id": "coordinator-3", "slo": {"odd[/]": unknown}},
    ]
    body = json.dumps({"model": "m", "coordinators": coordinators, "drafters": DRAFTERS})
    with serving(lambda *_: Answer(body)) as service:
        assert main(["top", "--once", "--interval-s", "0.01", "--url", service.url]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = next(i for i, words in enumerate(rows) if words[:2] == ["SLO", "class"])
    assert [words for words in rows[first + 1 :] if words and "─" not in words[0]] == [
        ["odd[/]", "0", "0.0%", "0.0%", "0.0%", "0"],
        ["speed_2", "8", "0.0%", "0.0%", "0.0%", "0"],
        ["speed_8", "40", "37.5%", "30.0%", "7.5%", "4"],
    ]


def test_without_promises_there_is_no_table_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda *_: Answer(status(0))) as service:
        assert main(["top", "--once", "--interval-s", "0.01", "--url", service.url]) == 0
    assert "SLO" not in capsys.readouterr().out


def test_bars_are_as_long_as_their_phases(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda *_: Answer(status(0))) as service:
        assert main(["top", "--once", "--interval-s", "0.01", "--url", service.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    bars = {
        line.split()[0]: line.count("█")
        for line in lines[lines.index(next(line for line in lines if line.startswith("ms per round"))) + 1 :]
    }
    assert list(bars.items()) == [("draft", 15), ("link", 4), ("queue", 1), ("verify", 30), ("orchestration", 2)]


def test_gateways_and_devices_that_dialled_in_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    dialled = {"device": "laptop", "gateway": "gateway-0", "down_bits": 8000, "up_bits": 12000}
    drafter = dict[str, object](DRAFTERS[0], dialled=dialled)
    gateways = [
        {"name": "gateway-0", "address": "a:8443", "devices": 1, "connections": 2, "refused": {"revoked": 3}},
        {"name": "gateway-1", "address": "", "fault": "port is taken"},
    ]
    body = json.dumps({"model": "m", "coordinators": [], "drafters": [drafter], "gateways": gateways})
    with serving(lambda *_: Answer(body)) as service:
        assert main(["top", "--once", "--interval-s", "0.01", "--url", service.url]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gateway-0", "a:8443", "1", "3", "revoked"] in rows
    assert ["gateway-1", "0", "port", "is", "taken"] in rows
    assert ["laptop", "drafter-e-0", "gateway-0", "8", "12"] in rows


def test_an_empty_service_has_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"model": "m", "coordinators": [], "drafters": []})
    with serving(lambda *_: Answer(body)) as service:
        assert main(["top", "--once", "--interval-s", "0.01", "--url", service.url]) == 0
    assert capsys.readouterr().out.count("none") == 2


def test_nobody_there_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda *_: Answer("", status=404)) as service:
        assert main(["top", "--once", "--url", service.url]) == 2
    assert capsys.readouterr().err.endswith(f"needs an Outrider service at {service.url}, found: HTTP status 404\n")
    assert main(["top", "--once", "--url", service.url]) == 2
    assert "Connection refused" in capsys.readouterr().err
    assert main(["top", "--interval-s", "0"]) == 2
    assert "--interval-s needs a number in (0, 86400], found 0.0" in capsys.readouterr().err


def test_the_live_view_survives_an_outage_and_leaves_on_ctrl_c() -> None:
    with serving(lambda _, number: Answer(status(number), status=503 if number == 1 else 200)) as service:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cluster.cli", "top", "--interval-s", "0.05", "--url", service.url]
        with Popen(command, stdin=DEVNULL, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            while not (b"trying again" in seen and seen.rpartition(b"trying again")[2].count(b"some-model") > 1):
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            try:
                while os.read(ours, 65536):
                    pass
            except OSError:
                pass  # the terminal is closed once nobody holds it
            assert process.wait() == 130
        os.close(ours)
    assert b"HTTP status 503" in seen
    assert b"Traceback" not in seen


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "00:00:00"), (3725.0, "01:02:05"), (180_000.0, "2d 02:00:00")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text

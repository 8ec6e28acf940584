import json
from itertools import pairwise
from pathlib import Path

import pytest

from lab.bench.papers.command import main
from lab.bench.papers.wisv.published import METHODS


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wisv.json"
    main(["wisv", "--json", str(file), "--plots", str(tmp_path)])
    record = json.loads(file.read_text())
    assert record["settings"]["paper"] == "wisv"
    assert len(record["table_1"]) == 40
    assert {"row", "method", "latency_s", "tokens_per_s", "latency_error"} <= set(record["table_1"][0])
    assert set(record["largest_errors"]) == set(METHODS)
    assert len(record["best_windows"]) == 16
    for one in record["uploads"]:
        even = one["break_even_rtt_s"]
        assert all(slow > fast for slow, fast in pairwise(even))  # the faster the link, the sooner the full one wins
    assert {path.name for path in tmp_path.glob("*.png")} == {"wisv-latency.png"}
    printed_text = capsys.readouterr().out
    assert "Table I from its own AALs" in printed_text
    assert "rule wrong in" in printed_text

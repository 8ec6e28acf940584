import pytest

from lab.bench.engines.tables import show_served
from lab.bench.harness.statistics import Sample


def test_the_table_shows_what_was_measured_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    torch = [Sample(2, "torch", {"tokens_per_s": speed, "acceptance": 0.75}) for speed in (10.0, 12.0)]
    show_served([Sample(2, "vllm", {}, "did not start"), *torch])
    shown = capsys.readouterr().out
    assert "11.0 [10.0-12.0]" in shown
    assert "0.75" in shown
    assert "FAILED vllm: did not start" in shown


def test_kinds_of_prompts_have_a_table_where_they_were_measured(capsys: pytest.CaptureFixture[str]) -> None:
    show_served([Sample(1, "torch", {"tokens_per_s": 1.0, "code_tokens_per_s": 7.5})])
    shown = capsys.readouterr().out
    assert "by kind of prompt" in shown
    assert "7.5 [7.5-7.5]" in shown
    show_served([Sample(1, "torch", {"tokens_per_s": 1.0})])
    assert "by kind of prompt" not in capsys.readouterr().out

"""What a service is compared with, over the embedded pair."""

import pytest

from lab.bench.load.overhead import baselines_of
from outrider.config.reading import load_config


def test_the_baselines_compute_in_the_services_type(capsys: pytest.CaptureFixture[str]) -> None:
    found = baselines_of(load_config(), tokens=2, prompts=1)
    assert set(found) == {"generate", "generate(assistant_model)"}
    assert min(found.values()) > 0
    assert "transformers, greedy, auto" not in capsys.readouterr().out

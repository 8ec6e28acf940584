"""A service with few places for generations, and two keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.config.reading import load_config
from tests.cluster.served import Service, started

NAME = "few places"
PLACES, QUEUED = 4, 48
READER_DEADLINE_S = 45.0  # long enough to be made 128 tokens ahead, and to be found standing still
FLOOD, OTHER = "sk-flood-0123456789", "sk-other-0123456789"
_KEYS = f"""
keys:
  - {{name: flood, key: {FLOOD}, concurrent_responses: null, max_choices: 64}}
  - {{name: other, key: {OTHER}}}
"""


@contextmanager
def with_few_places(folder: Path) -> Iterator[Service]:
    """The defaults but for these; ``folder`` takes the file of keys."""
    keys = folder / "keys.yaml"
    keys.write_text(_KEYS)
    config = load_config()
    limits = replace(config.limits, max_concurrent_generations=PLACES, max_queued_generations=QUEUED)
    config = replace(config, auth=replace(config.auth, keys_file=str(keys)), limits=limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_app.api.service.READER_DEADLINE_S", READER_DEADLINE_S)
        with started(config) as service:
            yield service


def head(key: str) -> dict[str, str]:
    """Headers of a request with a key."""
    return {"authorization": f"Bearer {key}"}

"""How long each part of loading a model takes, told as events: wall time, and processor time of the whole process."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.events import event

_LOG = logging.getLogger(__name__)


@contextmanager
def load_phase(phase: str) -> Iterator[None]:
    """While one part is done; what fails is not told."""
    began_s, used_s = time.monotonic(), time.process_time()
    yield
    cpu_s = time.process_time() - used_s
    event(_LOG, "model_load_phase", phase=phase, took_s=round(time.monotonic() - began_s, 3), cpu_s=round(cpu_s, 3))

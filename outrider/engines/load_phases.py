"""Log how long each part of loading a model takes, as events: wall time, and CPU time of the whole process."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.events import event

_LOG = logging.getLogger(__name__)


@contextmanager
def load_phase(phase: str) -> Iterator[None]:
    """Log an event after the enclosed part; none if it raises."""
    began_s, used_s = time.monotonic(), time.process_time()
    yield
    cpu_s = time.process_time() - used_s
    event(_LOG, "model_load_phase", phase=phase, took_s=round(time.monotonic() - began_s, 3), cpu_s=round(cpu_s, 3))

"""Settings of every test: quiet, offline, one thread per process. They hold before any library is imported."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes with several threads each slow one another down
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_metrics_report_interval_ms", "1000")  # a test of metrics waits for that

# No deadline: how long an example takes says nothing about the code on a machine that does other things too.
# The same examples in every run: a change is judged by what it does, not by which examples it happened to meet.
# `--hypothesis-profile explore` looks for new ones; what it finds becomes an `@example`.
settings.register_profile("outrider", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("outrider")

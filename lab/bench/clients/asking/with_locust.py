"""Locust without its web page: some users for a while, and its own report on them."""

import csv
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.bench.clients.asking.checking import Asked, expect, main

USERS, RUN_S = 4, 60
_FILE = Path(__file__).with_name("locustfile.py")


def _load(asked: Asked) -> str:
    prefix = asked.reports / "locust"
    how = ["--headless", "--only-summary", "--users", str(USERS), "--spawn-rate", str(USERS)]
    how += ["--run-time", f"{RUN_S}s", "--stop-timeout", "120s", "--csv", str(prefix), "--exit-code-on-error", "0"]
    command = [sys.executable, "-m", "locust", "-f", str(_FILE), "--host", asked.url.removesuffix("/v1"), *how]
    status = subprocess.run(command, env=os.environ | {"OUTRIDER_MODEL": asked.model}, check=False).returncode
    expect(status == 0, "status 0 at the end", status)
    with Path(f"{prefix}_stats.csv").open(encoding="utf-8", newline="") as report:
        return told_of(csv.DictReader(report))


def told_of(report: Iterable[Mapping[str, str]]) -> str:
    """Summarise each row of Locust's report except the total.

    Raises:
        UnexpectedError: a request failed, or there was none.
    """
    rows = [row for row in report if row["Name"] != "Aggregated"]
    for row in rows:
        expect(row["Failure Count"] == "0", f"no failure of {row['Type']} {row['Name']}", row["Failure Count"])
    requests = sum(int(row["Request Count"]) for row in rows if row["Type"] == "POST")
    expect(requests, "requests", rows)
    told = [f"{row['Type']} {row['Name']} {row['Request Count']}: {row['50%']}, {row['95%']}" for row in rows]
    return f"{requests} requests, 0 failed; count, p50 and p95 in ms: {'; '.join(told)}"


CHECKS = ((f"{USERS} users for {RUN_S} s", _load),)

if __name__ == "__main__":
    main("locust", CHECKS)

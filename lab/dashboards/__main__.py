"""Writes dashboards and rules beside this package: ``python -m lab.dashboards``."""

from cluster.monitoring.files import FOLDER
from lab.dashboards.drawn import drawn

for path, text in drawn().items():
    file = FOLDER / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(file)

"""Writes dashboards and rules beside this package: ``python -m cluster.monitoring.drawing``."""

from cluster.monitoring.drawing.drawn import drawn
from cluster.monitoring.files import FOLDER

for path, text in drawn().items():
    file = FOLDER / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(file)

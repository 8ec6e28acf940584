"""Print what CHANGELOG.md says of a version, once package and changelog agree that it is ready.

python .github/release_notes.py 0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(version: str, package: str, changelog: str) -> str:
    """The version's section.

    Args:
        version: that was tagged.
        package: the text of ``outrider/__init__.py``.
        changelog: the text of ``CHANGELOG.md``.

    Raises:
        ValueError: the package has another version, or the changelog no section of it that has a date.
    """
    if f'__version__ = "{version}"' not in package:
        raise ValueError(
            f"needs __version__ = {version!r} in outrider/__init__.py, found another: set it, or tag that one"
        )
    found = re.search(
        rf"^## {re.escape(version)} \(([^)\n]+)\)\n(.*?)(?=^## |\Z)", changelog, flags=re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise ValueError(f"needs a section '## {version} (YYYY-MM-DD)' in CHANGELOG.md, found none: write it")
    when, text = found.groups()
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", when):
        raise ValueError(
            f"needs the day of the release behind '## {version}' in CHANGELOG.md, found ({when}): write it"
        )
    return text.strip() + "\n"


if __name__ == "__main__":
    try:
        texts = [(ROOT / path).read_text(encoding="utf-8") for path in ("outrider/__init__.py", "CHANGELOG.md")]
        sys.stdout.write(notes(sys.argv[1], *texts))
    except ValueError as error:
        sys.exit(str(error))

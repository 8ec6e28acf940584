"""Print what Outrider needs, one requirement a line, without Outrider itself: images install it as a layer before.

python requirements.py pyproject.toml [EXTRA ...]
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: str, extras: list[str]) -> list[str]:
    """Of the package and the named extras.

    Raises:
        KeyError: no such extra.
    """
    project = tomllib.loads(pyproject)["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in extras for one in optional[extra])]


if __name__ == "__main__":
    print(*requirements(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]), sep="\n")

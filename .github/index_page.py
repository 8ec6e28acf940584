"""Prepare a checkout for a package index: its addresses in pyproject.toml, and a README whose links are absolute.

python .github/index_page.py https://github.com/OWNER/outrider v0.1.0

Links in a checkout are relative, so that they hold on any host and branch; on an index they would be dead. It writes
into the checkout that it is in: a release builds from it and throws it away.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_URLS = """
[project.urls]
Homepage = "{address}"
Source = "{address}/tree/{tag}"
Documentation = "{address}/blob/{tag}/README.md"
Changelog = "{address}/blob/{tag}/CHANGELOG.md"
Issues = "{address}/issues"
Security = "{address}/blob/{tag}/SECURITY.md"
"""


def with_urls(pyproject: str, address: str, tag: str) -> str:
    """The text with a table of addresses before the tools' own."""
    head, tools, rest = pyproject.partition("\n[tool.")
    return head + _URLS.format(address=address, tag=tag) + tools + rest


def absolute(readme: str, address: str, tag: str) -> str:
    """The text with the checkout's own files linked to by their addresses; pictures by those of their content."""

    def link(found: re.Match[str]) -> str:
        picture, text, path = found.groups()
        return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", link, readme)


def main() -> None:
    address, tag = sys.argv[1:]
    for name, prepared in (("pyproject.toml", with_urls), ("README.md", absolute)):
        path = ROOT / name
        path.write_text(prepared(path.read_text(encoding="utf-8"), address, tag), encoding="utf-8")


if __name__ == "__main__":
    main()

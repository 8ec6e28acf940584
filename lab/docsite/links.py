"""Links of Markdown files of the repository, and where they lead on the site.

A file of ``docs/`` is on the site under its own path, ``README.md`` is the front page, and any other file that a page
links to is on the site in ``repository/``.
"""

import re
from collections.abc import Callable, Iterator
from os.path import relpath
from pathlib import Path, PurePosixPath
from posixpath import normpath

_LINK = re.compile(
    r"^```.*?^```|`[^`\n]+`|(?<=\]\()(?P<inline>[^)\s]+)(?=\))|^(?<!\S)\[[^\]]+\]: (?P<defined>\S+)$",
    re.MULTILINE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def site_path(file: str) -> str:
    """Where a file of the repository is on the site."""
    if file == "README.md":
        return "index.md"
    return file.removeprefix("docs/") if file.startswith("docs/") else f"repository/{file}"


def repository_path(source: str) -> str:
    """The file of the repository that a page of the site comes from."""
    if source == "index.md":
        return "README.md"
    return source.removeprefix("repository/") if source.startswith("repository/") else f"docs/{source}"


def targets(text: str, file: str, root: Path) -> Iterator[str]:
    found: list[str] = []
    rewrite(text, file, root, found.append)
    yield from found


def for_site(text: str, file: str, root: Path) -> str:
    return rewrite(text, file, root, lambda _: None)


def rewrite(text: str, file: str, root: Path, seen: Callable[[str], None]) -> str:
    """Point links at the site's files; a link to a folder leads to its README.md. What does not exist stays."""
    here = PurePosixPath(site_path(file)).parent

    def replaced(match: re.Match[str]) -> str:
        link = match["inline"] or match["defined"]
        if link is None or _ELSEWHERE.match(link):
            return match[0]
        path, mark, anchor = link.partition("#")
        target = normpath(str(PurePosixPath(file).parent / path))
        if (root / target).is_dir():
            target = f"{target}/README.md"
        if not (root / target).is_file() and not target.startswith("docs/reference/"):
            return match[0]
        seen(target)
        return match[0].replace(link, f"{PurePosixPath(relpath(site_path(target), here))}{mark}{anchor}")

    return _LINK.sub(replaced, text)


_CODE_OR_LIST = re.compile(r"^```.*?^```|^(?P<before>(?!- |  |\d+\. )\S[^\n]*\n)(?=- )", re.MULTILINE | re.DOTALL)


def with_space_before_lists(text: str) -> str:
    """Return the text with an empty line before each list that follows a paragraph; code stays."""
    return _CODE_OR_LIST.sub(lambda match: f"{match['before']}\n" if match["before"] else match[0], text)

"""Fields that nobody here knows: ignored and told in a header, unless they look like a misspelling of a known field."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache

from serve_app.api.http_errors import UnknownFieldError
from serve_app.api.service import RequestLimits

IGNORED_HEADER = "x-outrider-ignored"
MOST_NAMED, MOST_NAME_CHARS = 16, 64
MOST_IGNORED = 64  # different ones of a request: each is compared with all known names, which takes up to a millisecond
_ALIKE = 0.85  # of ``difflib``: one letter of seven
# Names that others use, and that resemble names here without meaning the same.
_NO_MISSPELLINGS = frozenset({"models", "id", "ids", "names", "contents"})


class IgnoredFields:
    """Names of one request's ignored fields; ``strict``: each is refused."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._names: dict[str, None] = {}

    @classmethod
    def of(cls, limits: RequestLimits) -> "IgnoredFields":
        return cls(strict=limits.strict_fields)

    def add(self, path: str, name: str, known: Iterable[str]) -> None:
        """Note a field, by its name and where it is, that is not among the ``known`` ones beside it.

        Raises:
            UnknownFieldError: it resembles one of them, fields must be known, or there are too many.
        """
        short, names = name[:MOST_NAME_CHARS], tuple(known)
        near = resembled(short, names)
        if near is not None or self._strict:
            hint = f"known here: {', '.join(names)}" if near is None else f"did you mean {near}?"
            raise UnknownFieldError(path, f"{path} is not a known field; {hint}")
        self.tell(without_indices(path))
        if len(self._names) > MOST_IGNORED:
            raise UnknownFieldError(path, f"{path} is not a known field, nor are {MOST_IGNORED} others; leave them out")

    def tell(self, name: str) -> None:
        """Note the name of something that has no effect, a field or a header."""
        self._names[name] = None

    @property
    def headers(self) -> Mapping[str, str]:
        named = [sanitised(name) for name in self._names][:MOST_NAMED]
        return {IGNORED_HEADER: ", ".join(named)} if named else {}


def sanitised(name: str) -> str:
    """The name as part of a header: letters, digits and ``_.-``, others as ``?``."""
    short = name[:MOST_NAME_CHARS]
    return "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "?" for char in short) or "?"


def without_indices(path: str) -> str:
    """``messages.content.tone`` of a path such as ``messages[0].content[1].tone``."""
    parts = path.split("[")
    return parts[0] + "".join(rest.lstrip("0123456789").removeprefix("]") for rest in parts[1:])


@lru_cache(1024)
def resembled(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that ``name`` is a misspelling of: case and underscores aside, nearly the same."""
    if name in _NO_MISSPELLINGS:
        return None
    spelled = {_letters(each): each for each in known}
    near = get_close_matches(_letters(name), spelled, n=1, cutoff=_ALIKE)
    return spelled[near[0]] if near else None


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")

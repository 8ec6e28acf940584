"""Read API keys from a file. A key may be given by its SHA-256 alone, so that the file discloses none.

keys:
  - {name: alice, sha256: 5e88..., requests_per_minute: 60, tokens_per_minute: 100000, concurrent_responses: 8}
  - {name: batch, key: sk-..., slo: {default: best_effort, allowed: [best_effort]}, drafters: [lab]}
"""

import re
from collections.abc import Sequence
from dataclasses import field, fields
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from outrider.contracts.errors import ConfigError
from outrider.documents.problems import ConfigFileError, explain
from outrider.documents.text_file import decode, read_bytes
from outrider.documents.yaml_text import parse_yaml

MIN_KEY_CHARS, MAX_KEY_CHARS = 16, 512
MAX_CHOICES = 64  # of a request, whatever its key allows
_CHOICES = 16  # default of a key: half of a coordinator's places
_CONCURRENT_RESPONSES = 128  # default of a key: four times a coordinator's places

_Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", description="a short name")]
_Key = Annotated[
    str,
    Field(
        strict=True,
        pattern=rf"^[!-~]{{{MIN_KEY_CHARS},{MAX_KEY_CHARS}}}$",
        description=f"{MIN_KEY_CHARS} to {MAX_KEY_CHARS} printable characters, no spaces",
    ),
]
_Sha256 = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits")]
_Rate = Annotated[float, Field(strict=True, gt=0, le=1e12)]
_Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_FORBID)
class KeyClasses:
    """SLO classes of a key; None stands for those of the configuration."""

    default: _Name | None = None
    allowed: Annotated[tuple[_Name, ...], Field(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if self.default is not None and self.allowed is not None and self.default not in self.allowed:
            raise ConfigError("default", "one of allowed", self.default)


@dataclass(frozen=True, slots=True, config=_FORBID)
class Tenant:
    """The holder of a key. None is no limit, like null in YAML."""

    name: _Name  # in logs and errors; prefixes are cached and prompt lookup is done under it
    key: _Key | None = field(default=None, repr=False)  # the key itself; or ``sha256``, its digest
    sha256: _Sha256 | None = field(default=None, repr=False)
    requests_per_minute: _Rate | None = None  # mean rate, and largest burst
    tokens_per_minute: _Rate | None = None  # likewise, of prompts and responses
    concurrent_responses: _Count | None = _CONCURRENT_RESPONSES  # active at a time; each choice counts as one
    max_choices: Annotated[int, Field(strict=True, ge=1, le=MAX_CHOICES)] = _CHOICES  # of one request
    slo: KeyClasses = field(default_factory=KeyClasses)
    drafters: tuple[_Name, ...] | None = None  # drafter groups that may see its prompts

    def __post_init__(self) -> None:
        if (self.key is None) == (self.sha256 is None):
            found = "both" if self.key is not None else "neither"
            raise ConfigError("key", "a key, or sha256 of one", found)

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.sha256) if self.key is None else digest_of(self.key)  # type: ignore[arg-type]  # one is given


@dataclass(frozen=True, slots=True, config=_FORBID)
class KeyFile:
    keys: Annotated[tuple[Tenant, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        names = [tenant.name for tenant in self.keys]
        if len(set(names)) < len(names):
            raise ConfigError("keys", "a different name for each key", "one name twice")
        if len({tenant.digest for tenant in self.keys}) < len(names):
            raise ConfigError("keys", "a different key for each name", "one key twice")


class Keys:
    """All tenants, to find the one that a key belongs to."""

    def __init__(self, tenants: tuple[Tenant, ...]) -> None:
        self.tenants = tenants
        self._digests = [(tenant.digest, tenant) for tenant in tenants]

    def tenant_of(self, key: str) -> Tenant | None:
        """Return the tenant of a key. Constant time, whichever tenant it is and however much of the key is right."""
        asked, found = digest_of(key), None
        for digest, tenant in self._digests:
            if compare_digest(digest, asked):
                found = tenant
        return found


_ADAPTER = TypeAdapter(KeyFile)
_OWN_WORDS = ("both", "neither", "one key twice", "one name twice")  # reported by this module's own checks
_FIELDS = {"keys", *(each.name for kind in (Tenant, KeyClasses) for each in fields(kind))}
_MOST_SHOWN_CHARS = 7
_FIELD, _KIND = "auth.keys_file", "YAML"


def digest_of(key: str) -> bytes:
    return sha256(key.encode(errors="surrogateescape")).digest()


def parse_keys(text: str, source: str) -> Keys:
    """Parse keys from YAML; ``source`` names the text in a ``ConfigError``, which never contains a key."""
    try:
        document = parse_yaml(text, source)
    except ConfigError as error:  # whose cause quotes the text
        problem = ConfigError(error.field, error.needed, _without_text(str(error.found)))
        raise ConfigFileError((problem,), source) from None
    try:
        return Keys(_ADAPTER.validate_python(document).keys)
    except ValidationError as error:
        problems = explain(error, _ADAPTER.json_schema())
        raise ConfigFileError(tuple(map(_without_secret, problems)), source) from None


def read_keys(path: str) -> Keys:
    """Read and parse a file of keys; a ``ConfigError`` if it cannot be read, or holds no keys."""
    return decode_keys(read_key_file(path), path)


def read_key_file(path: str) -> bytes:
    """Read the bytes of a file of keys, for ``decode_keys``."""
    return read_bytes(path, _FIELD, _KIND)


def decode_keys(data: bytes, path: str) -> Keys:
    """Parse the bytes of a file of keys; a ``ConfigError`` if they hold none."""
    return parse_keys(decode(data, path, _FIELD, _KIND), path)


def check_against(keys: Keys, classes: Sequence[str], groups: Sequence[str], source: str) -> None:
    """Check the names in keys: an unknown SLO class or drafter group is a ``ConfigError``."""
    for index, tenant in enumerate(keys.tenants):
        named = [*(tenant.slo.allowed or ()), *filter(None, [tenant.slo.default])]
        for field_name, names, known in (("slo", named, classes), ("drafters", tenant.drafters or (), groups)):
            for name in names:
                if name not in known:
                    needed = f"names out of {', '.join(known) or 'none'}"
                    problem = _without_secret(ConfigError(f"keys[{index}].{field_name}", needed, name))
                    raise ConfigFileError((problem,), source)


def _without_secret(problem: ConfigError) -> ConfigError:
    """Hide a value that may be a key or a good part of one: a key may stand in any field by mistake."""
    found = problem.found
    is_short = isinstance(found, str | int | float) and len(str(found)) <= _MOST_SHOWN_CHARS
    is_secret = problem.field.endswith((".key", ".sha256")) or not is_short
    if found is None or found in _OWN_WORDS or not is_secret:
        return problem
    if problem.field.endswith(".key") and isinstance(found, str) and len(found) < MIN_KEY_CHARS:
        return ConfigError(problem.field, problem.needed, f"one of {len(found)} characters")
    return ConfigError(problem.field, problem.needed, "something else")


def _without_text(complaint: str) -> str:
    """Return a YAML library's complaint without quotes of the text."""
    place, _, repeated = complaint.removesuffix(" is given twice").rpartition(": ")
    if complaint.endswith(" is given twice") and repeated not in _FIELDS:
        return f"{place}: a key is given twice"
    return re.sub(r"""['"].*['"]""", "'...'", complaint)

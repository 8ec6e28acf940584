"""Read who may dial in to a gateway: device keys, and what is revoked. A key may be given by its SHA-256 alone.

keys:
  - {name: jetson-7, sha256: 5e88...}
revoked: [jetson-3, 9f86d081...]  # names of devices, or SHA-256 of certificates
"""

from collections.abc import Sequence
from dataclasses import field
from hmac import compare_digest
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from outrider.contracts.errors import ConfigError
from outrider.documents.text_file import decode, read_bytes
from outrider.documents.yaml_text import parse_yaml
from outrider.tenants.keys import MAX_KEY_CHARS, MIN_KEY_CHARS, digest_of

_FIELD, _KIND = "gateway.devices_file", "YAML"
_FORBID = ConfigDict(extra="forbid", hide_input_in_errors=True)  # it may be a key
_Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
_Text = Annotated[str, Field(strict=True, min_length=1, max_length=256)]


@dataclass(frozen=True, slots=True, config=_FORBID)
class DeviceKey:
    name: _Name
    key: Annotated[str, Field(strict=True, pattern=rf"^[!-~]{{{MIN_KEY_CHARS},{MAX_KEY_CHARS}}}$")] | None = field(
        default=None, repr=False
    )
    sha256: Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.key is None) == (self.sha256 is None):
            raise ConfigError("key", "a key, or sha256 of one", "both or neither")

    @property
    def digest(self) -> bytes:
        return digest_of(self.key) if self.key is not None else bytes.fromhex(self.sha256 or "")


@dataclass(frozen=True, slots=True, config=_FORBID)
class DevicesFile:
    keys: tuple[DeviceKey, ...] = ()
    revoked: tuple[_Text, ...] = ()


class Devices:
    """Device keys, and what is revoked."""

    def __init__(self, keys: Sequence[DeviceKey] = (), revoked: Sequence[str] = ()) -> None:
        self._digests = [(one.digest, one.name) for one in keys]
        self._known = frozenset(digest for digest, _ in self._digests)
        self._revoked = frozenset(name.lower().replace(":", "") for name in revoked)

    def named(self, key: str) -> str | None:
        """Return whose key it is, in constant time; None: nobody's."""
        asked, found = digest_of(key), None
        for digest, name in self._digests:
            if compare_digest(digest, asked):
                found = name
        return found

    def knows(self, digest: bytes) -> bool:
        """Return whether there is a key of this SHA-256, which is no secret that somebody guesses."""
        return digest in self._known

    def is_revoked(self, *names: str | None) -> bool:
        """Return whether one of these is: a device's name, or the SHA-256 of its certificate."""
        return any(name is not None and name.lower() in self._revoked for name in names)


_ADAPTER = TypeAdapter(DevicesFile)
_FIELDS = {"keys", "revoked", "name", "key", "sha256"}


def read_devices_file(path: str) -> bytes:
    """Read the file's bytes; a ``ConfigError`` if it cannot be read."""
    return read_bytes(path, _FIELD, _KIND)


def decode_devices(data: bytes, path: str) -> Devices:
    """Parse the file; a ``ConfigError``, which never contains a key, if it is of another form."""
    try:
        document = parse_yaml(decode(data, path, _FIELD, _KIND), path)
    except ConfigError as error:
        raise ConfigError(_FIELD, error.needed, "what cannot be parsed") from None
    try:
        found = _ADAPTER.validate_python(document if document is not None else {})
    except ValidationError as error:
        needed = f"a YAML file {path} of keys (name, and key or sha256) and revoked"
        raise ConfigError(_FIELD, needed, f"something else at {_place(error)}") from None
    return Devices(found.keys, found.revoked)


def _place(error: ValidationError) -> str:
    """Return where the first problem is; a name that is no field's may be a key."""
    location = error.errors(include_input=False)[0]["loc"]
    return ".".join(str(part) for part in location if isinstance(part, int) or part in _FIELDS) or "its top"

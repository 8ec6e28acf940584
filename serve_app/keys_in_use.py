"""The API keys of one ingress: read from their file at the start, and again for as long as it runs.

Whatever happens to the file, the keys that were read last stay in use and the reading goes on. A key that is taken out
of a sound file opens nothing any more ``auth.reload_s`` and ``SETTLE_S`` later.
"""

import asyncio
import logging
import time

from outrider.contracts.errors import ConfigError, OutriderError
from outrider.events import event
from outrider.tenants.key_file import KeyFileRead, KeyFileWatch, after_read
from outrider.tenants.keys import Keys, check_against, decode_keys, read_key_file
from serve_app.api.service import AuthSettings

log = logging.getLogger(__name__)
SETTLE_S = 1.0  # between two reads that must be equal
_SETTLE_DEADLINE_S = 30.0  # at the start, of a file that changes all the time
_MOST_NAMES = 10  # of vanished keys in one log line


class KeysInUse:
    """``keys`` may be replaced at any moment; all methods but the constructor run on one event loop."""

    def __init__(self, settings: AuthSettings, settle_s: float = SETTLE_S) -> None:
        """Read them, which takes ``settle_s`` or more.

        Raises:
            ConfigError: they cannot be read.
        """
        self._settings, self._settle_s = settings, settle_s
        self._watch, self.keys = _read_settled(settings, settle_s)
        self._confirmed_at_s = time.monotonic()
        self._refused = False
        self._failure = ""

    @property
    def age_s(self) -> float:
        """Seconds since the file was found to hold the keys in use."""
        return time.monotonic() - self._confirmed_at_s

    @property
    def refused(self) -> bool:
        """Whether the file holds something else now, which could not be taken."""
        return self._refused

    async def take(self, settings: AuthSettings) -> None:
        """Read them anew, by other settings.

        Raises:
            ConfigError: the keys cannot be read, or do not fit them; nothing changes.
        """
        watch, keys = await asyncio.to_thread(_read_settled, settings, self._settle_s)
        self._settings, self._watch = settings, watch
        self._use(keys)

    async def reload_for_ever(self) -> None:
        """Look at the file again and again; cancelling ends it, nothing else does."""
        while True:
            await asyncio.sleep(self._settings.reload_s)
            try:
                while await self._look() is KeyFileRead.CHANGING:  # noqa: ASYNC110 (files have no event)
                    await asyncio.sleep(self._settle_s)
            except Exception as error:  # noqa: BLE001 (a look that fails must not be the last; the keys' age tells)
                self._failed(error)

    async def _look(self) -> KeyFileRead:
        settings = self._settings
        now_s, content = time.monotonic(), await asyncio.to_thread(_content, settings.keys_file)
        if settings is not self._settings:
            return KeyFileRead.CHANGING
        self._watch, look = after_read(self._watch, content, now_s, self._settle_s)
        self._failure = ""
        if look is KeyFileRead.SAME and not self._refused:
            self._confirmed_at_s = now_s
        elif look is KeyFileRead.SETTLED:
            await self._judge(settings, content)
        return look

    async def _judge(self, settings: AuthSettings, content: bytes | str) -> None:
        """Take what the file holds, or refuse it."""
        try:
            keys = await asyncio.to_thread(_keys_of, content, settings)
        except Exception as error:  # noqa: BLE001 (whatever the file made of a library)
            if settings is self._settings:
                self._refuse(error)
            return
        if settings is self._settings:
            self._use(keys)

    def _use(self, keys: Keys) -> None:
        before, self.keys = self.keys, keys
        was_refused, self._refused = self._refused, False
        self._confirmed_at_s = time.monotonic()
        if before.tenants == keys.tenants and not was_refused:
            return
        event(log, "keys_read", keys=len(keys.tenants))
        names = {tenant.name for tenant in keys.tenants}
        if vanished := [tenant.name for tenant in before.tenants if tenant.name not in names]:
            event(log, "keys_removed", logging.WARNING, keys=len(vanished), names=vanished[:_MOST_NAMES])

    def _failed(self, error: Exception) -> None:
        if (reason := repr(error)) != self._failure:
            self._failure = reason
            event(log, "keys_look_failed", logging.ERROR, reason=reason)

    def _refuse(self, error: Exception) -> None:
        self._refused = True
        # what a library says may hold a part of the file
        reason = str(error) if isinstance(error, OutriderError) else type(error).__name__
        event(log, "keys_not_read", logging.ERROR, reason=reason, in_use=len(self.keys.tenants))


def _read_settled(settings: AuthSettings, settle_s: float) -> tuple[KeyFileWatch, Keys]:
    """Read a file until it has stood for ``settle_s``."""
    watch, give_up_at_s = KeyFileWatch(), time.monotonic() + _SETTLE_DEADLINE_S
    while True:
        now_s, content = time.monotonic(), _content(settings.keys_file)
        watch, look = after_read(watch, content, now_s, settle_s)
        if look is KeyFileRead.SETTLED:
            return watch, _keys_of(content, settings)
        if now_s > give_up_at_s:
            raise ConfigError("auth.keys_file", f"a file that stands still for {settle_s:g} s", "one that changes on")
        time.sleep(settle_s)


def _content(path: str) -> bytes | str:
    try:
        return read_key_file(path)
    except ConfigError as error:
        return str(error.found)


def _keys_of(content: bytes | str, settings: AuthSettings) -> Keys:
    """Keys of what was read, or the error of having read nothing."""
    if isinstance(content, str):
        raise ConfigError("auth.keys_file", "a readable YAML file", content)
    keys = decode_keys(content, settings.keys_file)
    check_against(keys, settings.classes, settings.groups, settings.keys_file)
    return keys

"""Reads an ingress's API keys from their file at the start, and reloads them while it runs.

Whatever happens to the file, the keys that were read last stay in use and reloading goes on. A key that is removed from
a valid file is refused after ``AuthSettings.reload_s`` plus ``SETTLE_S`` at most.
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
SETTLE_S = 1.0  # between two reads that must be equal: a file may be read while it is written
_SETTLE_DEADLINE_S = 30.0  # at the start, for a file that keeps changing
_MOST_NAMES = 10  # of removed keys in one log line


class KeysInUse:
    """``keys`` may be replaced at any moment; all methods but the constructor run on one event loop."""

    def __init__(self, settings: AuthSettings, settle_s: float = SETTLE_S) -> None:
        """Read the keys, which blocks for ``settle_s`` or more.

        Raises:
            ConfigError: the keys cannot be read.
        """
        self._settings, self._settle_s = settings, settle_s
        self._watch, self.keys = _read_settled(settings, settle_s)
        self._confirmed_at_s = time.monotonic()
        self.refused = False  # whether the file now has other content that is not valid
        self._failure = ""

    @property
    def age_s(self) -> float:
        """Seconds since the file was found to hold the keys in use."""
        return time.monotonic() - self._confirmed_at_s

    async def take(self, settings: AuthSettings) -> None:
        """Read the keys again, under other settings.

        Raises:
            ConfigError: the keys cannot be read, or do not fit the settings; nothing changes.
        """
        watch, keys = await asyncio.to_thread(_read_settled, settings, self._settle_s)
        self._settings, self._watch = settings, watch
        self._use(keys)

    async def reload_for_ever(self) -> None:
        """Reload the file every ``reload_s`` until cancelled; no error ends this."""
        while True:
            await asyncio.sleep(self._settings.reload_s)
            try:
                while await self._look() is KeyFileRead.CHANGING:  # noqa: ASYNC110 (files have no event)
                    await asyncio.sleep(self._settle_s)
            except Exception as error:  # noqa: BLE001 (keep reloading; the gauge of the keys' age shows the failure)
                self._failed(error)

    async def _look(self) -> KeyFileRead:
        settings = self._settings
        now_s, content = time.monotonic(), await asyncio.to_thread(_content, settings.keys_file)
        if settings is not self._settings:  # replaced by ``take`` during the read
            return KeyFileRead.CHANGING
        self._watch, look = after_read(self._watch, content, now_s, self._settle_s)
        self._failure = ""
        if look is KeyFileRead.SAME and not self.refused:
            self._confirmed_at_s = now_s
        elif look is KeyFileRead.SETTLED:
            await self._judge(settings, content)
        return look

    async def _judge(self, settings: AuthSettings, content: bytes | str) -> None:
        """Use the keys of settled content, or refuse it."""
        try:
            keys = await asyncio.to_thread(_keys_of, content, settings)
        except Exception as error:  # noqa: BLE001 (any error that the content causes in a parser)
            if settings is self._settings:
                self._refuse(error)
            return
        if settings is self._settings:
            self._use(keys)

    def _use(self, keys: Keys) -> None:
        before, self.keys = self.keys, keys
        was_refused, self.refused = self.refused, False
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
        self.refused = True
        # A library's message may contain a part of the file, and so keys: log only the type of its error.
        reason = str(error) if isinstance(error, OutriderError) else type(error).__name__
        event(log, "keys_not_read", logging.ERROR, reason=reason, in_use=len(self.keys.tenants))


def _read_settled(settings: AuthSettings, settle_s: float) -> tuple[KeyFileWatch, Keys]:
    """Read a file until its content has not changed for ``settle_s``. Blocks."""
    watch, give_up_at_s = KeyFileWatch(), time.monotonic() + _SETTLE_DEADLINE_S
    while True:
        now_s, content = time.monotonic(), _content(settings.keys_file)
        watch, look = after_read(watch, content, now_s, settle_s)
        if look is KeyFileRead.SETTLED:
            return watch, _keys_of(content, settings)
        if now_s > give_up_at_s:
            raise ConfigError("auth.keys_file", f"a file unchanged for {settle_s:g} s", "one that keeps changing")
        time.sleep(settle_s)


def _content(path: str) -> bytes | str:
    try:
        return read_key_file(path)
    except ConfigError as error:
        return str(error.found)


def _keys_of(content: bytes | str, settings: AuthSettings) -> Keys:
    """Parse and check keys; raise ConfigError for a string, which says why the file could not be read."""
    if isinstance(content, str):
        raise ConfigError("auth.keys_file", "a readable YAML file", content)
    keys = decode_keys(content, settings.keys_file)
    check_against(keys, settings.classes, settings.groups, settings.keys_file)
    return keys

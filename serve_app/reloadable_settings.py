"""Applies reloadable settings in a replica: Serve passes them as ``user_config``; they hold for later requests."""

import logging
from collections.abc import Awaitable, Callable

from outrider.config.reloadable import ReloadableFields, reloadable_of, with_reloadable
from outrider.config.schema import Config
from outrider.contracts.errors import OutriderError
from outrider.events import event

log = logging.getLogger(__name__)


class ReloadableSettings:
    """Settings of one replica. ``user_config`` names only what differs from the configuration it was built with."""

    def __init__(self, built: Config, note: Callable[[bool], None]) -> None:
        """Start with the settings of ``built``. ``note`` sets the gauge of refused settings."""
        self._built = self._config = built
        self._note, self._refused = note, False
        self._begun = False

    def say_again(self) -> None:
        """Set the gauge again: Ray drops a gauge that is not set for a while."""
        self._note(self._refused)

    async def take(self, user_config: ReloadableFields, change: Callable[[Config], Awaitable[None]]) -> None:
        """Apply settings by ``change``, which must apply all of them or raise.

        A running replica keeps its settings if the new ones cannot be applied: if it raised, Serve would end it, and
        its successor could not start. It logs ``settings_refused``, and the gauge of that name stays set meanwhile.
        """
        try:
            config = with_reloadable(self._built, user_config)
            await change(config)
        except Exception as error:
            if not self._begun:
                raise
            reason = str(error) if isinstance(error, OutriderError) else repr(error)
            event(log, "settings_refused", logging.ERROR, reason=reason)
            self._refused = True
            self.say_again()
            return
        self._refused = False
        self.say_again()
        before, self._config = reloadable_of(self._config), config
        if self._begun:
            event(log, "settings_taken", changed=_changed(before, reloadable_of(config)))
        self._begun = True


def _changed(before: ReloadableFields, after: ReloadableFields) -> dict[str, object]:
    return {
        f"{section}.{name}": value
        for section, values in after.items()
        for name, value in values.items()
        if value != before[section][name]
    }

"""Light settings in a replica: Serve hands them over as ``user_config``, and they hold from the next request on."""

import logging
from collections.abc import Awaitable, Callable

from outrider.config.reloadable import ReloadableFields, reloadable_of, with_reloadable
from outrider.config.schema import Config
from outrider.contracts.errors import OutriderError
from outrider.events import event

log = logging.getLogger(__name__)


class ReloadableSettings:
    """Of one replica. ``user_config`` need name only what differs from the configuration it was built with."""

    def __init__(self, built: Config, note: Callable[[bool], None]) -> None:
        """Those it was built with hold. ``note`` is told each time whether those that were handed over are refused."""
        self._built = self._config = built
        self._note, self._refused = note, False
        self._begun = False

    def say_again(self) -> None:
        """Note it once more: of a gauge that is not set again nothing is left."""
        self._note(self._refused)

    def _say(self, *, refused: bool) -> None:
        self._refused = refused
        self.say_again()

    async def take(self, user_config: ReloadableFields, change: Callable[[Config], Awaitable[None]]) -> None:
        """Hand a configuration with the new ones to ``change``, which does all of it or raises.

        A replica that runs keeps what it has where they cannot be taken: Serve would otherwise end it, and another one
        could not start. The event ``settings_refused`` says so, and the gauge of that name until others are taken.

        Raises:
            Exception: they cannot be taken by a replica that only starts, so that Serve says why it does not.
        """
        try:
            config = with_reloadable(self._built, user_config)
            await change(config)
        except Exception as error:
            if not self._begun:
                raise
            reason = str(error) if isinstance(error, OutriderError) else repr(error)
            event(log, "settings_refused", logging.ERROR, reason=reason)
            self._say(refused=True)
            return
        self._say(refused=False)
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

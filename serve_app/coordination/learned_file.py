"""Keeps what the speculation tuner has learned in a small file of the cache folder, for the next start on this machine.

It is written in a thread, rarely, and whole. No file is kept where what devices draft is not to be trusted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from actors.messages import ModelCard
from outrider.contracts.errors import OutriderError
from outrider.documents.text_file import read_text
from outrider.documents.whole_file import write_whole
from outrider.engines.kinds import VerifierSpec
from outrider.events import event
from outrider.models.embedded import outrider_home
from outrider.selection.tuning.learned import MAX_LEARNED_BYTES, LearnedChoice, learned_key, parsed, written
from serve_app.coordination.settings import DraftingSettings

_EVERY_S = 20.0
_MOST_FILES = 64  # in the folder; the oldest are removed

log = logging.getLogger(__name__)


def key_of(card: ModelCard, spec: VerifierSpec, drafting: DraftingSettings, models: Mapping[str, str]) -> str | None:
    """Return the key of all that a mode's speed depends on; None if nothing may be kept.

    ``models``: hashes of draft models by drafter group.
    """
    if card.machine is None or not all(group.trusted for group in drafting.drafters if group.drafts):
        return None
    return learned_key(card.target, card.machine, spec.speed, drafting.drafters, drafting.speculation, dict(models))


class LearnedFile:
    def __init__(self, key: str | None, clock: Callable[[], float], home: Path | None = None) -> None:
        """Without ``key`` nothing is read or written. ``home``: the cache folder, if not the user's."""
        self._key, self._clock, self._due_at_s = key, clock, clock() + _EVERY_S
        self._file = (home or outrider_home()) / "learned" / f"{key}.json"
        self._last = LearnedChoice()

    async def read(self) -> LearnedChoice:
        """Return what the file says; nothing if it is missing, damaged, or of another version or key."""
        if self._key is not None:
            try:
                self._last = await asyncio.to_thread(self._read, self._key)
            except (OutriderError, OSError) as error:
                event(log, "learned_choice_ignored", logging.WARNING, file=str(self._file), reason=f"{error!s:.500}")
        return self._last

    async def keep(self, learned: Callable[[], LearnedChoice]) -> None:
        """Write what was learned, if it is due and something new."""
        if self._key is None or self._clock() < self._due_at_s:
            return
        self._due_at_s = self._clock() + _EVERY_S
        if (now := learned()) != self._last and now.rewards:
            try:
                await asyncio.to_thread(self._write, now, self._key)
                self._last = now
            except (OutriderError, OSError) as error:
                event(log, "learned_choice_not_kept", logging.WARNING, reason=f"{error!s:.500}")
                self._key = None

    def _read(self, key: str) -> LearnedChoice:
        if not self._file.exists():
            return LearnedChoice()
        return parsed(read_text(self._file, "learned", "learned choice", MAX_LEARNED_BYTES), key)

    def _write(self, learned: LearnedChoice, key: str) -> None:
        write_whole(self._file, written(learned, key))
        files = sorted(self._file.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-_MOST_FILES]:
            file.unlink(missing_ok=True)
